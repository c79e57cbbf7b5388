package delivery

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// Job is one attempt to deliver one outcome.
type Job struct {
	Run     drover.RunID
	ID      drover.DeliveryID
	Attempt int
	Token   string // comes back with what is heard
	Notify  drover.Notify
	Outcome *drover.Outcome // without its result
	Body    []byte          // the outcome as JSON, with its result
}

// Target tells whom a delivery is for from all others: deliveries with the same
// target share a queue.
func Target(n *drover.Notify) string {
	text := n.Kind() + "\n" + n.Subject + n.StreamSubject + n.URL + string(n.Function) + n.Session + "\n" + n.Secret
	if n.Batch != nil {
		text += "\n" + strconv.Itoa(n.Batch.Max) + "\n" + n.Batch.Wait.String()
	}
	return text
}

// Key lists the delivery of a run to a subscriber.
func Key(n *drover.Notify, partitions int, run drover.RunID, subscriber int) string {
	return subjects.DeliveryKey(Target(n), subjects.Partition(string(run), partitions), run, subscriber)
}

// Source finds what else there is to deliver. Its methods may be called by several
// goroutines at once.
type Source interface {
	// Listed visits the deliveries that are listed for a target in partitions
	// that this worker owns, oldest first, until visit gives false.
	Listed(ctx context.Context, target string, visit func(run drover.RunID, subscriber int) bool) error
	// Load makes the next attempt of a delivery, or gives nil where it is not
	// pending any more, and is taken off the list then, or where its partition is
	// not this worker's.
	Load(ctx context.Context, run drover.RunID, subscriber int) (*Job, error)
}

// defaultDrain is how long what is under way may take when Run is asked to end.
const defaultDrain = 5 * time.Second

// Options of a deliverer. All but Secrets and DrainTimeout are required.
type Options struct {
	Names  subjects.Names
	Conn   *nats.Conn
	HTTP   *http.Client // follows no redirects, and refuses what it may not reach
	Source Source
	// Secrets gives the secrets that sign for a name, the first one is the
	// latest. It is asked for every attempt. nil knows none.
	Secrets func(name string) [][]byte
	// Heard tells a run how an attempt went. It must not block, and sees to it
	// that the message becomes durable.
	Heard func(drover.RunID, drover.HeardMessage)
	// DrainTimeout is how long what is under way may take when Run is asked to
	// end; what is not heard of by then is made again. 0 means 5 s.
	DrainTimeout time.Duration
	Logger       zerolog.Logger
}
