package delivery

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// inbox is where answers come in: one subscription for all of them, and nothing
// that waits but an entry. Messages to streams are requests like others, whose
// answer is the server's acknowledgement: so streams that give none use up nothing
// that the worker needs to advance its runs.
type inbox struct {
	nc     *nats.Conn
	prefix string

	mu      *sync.Mutex
	last    *uint64
	waiting map[uint64]*attempt
}

func newInbox(nc *nats.Conn) inbox {
	return inbox{nc: nc, prefix: nc.NewInbox() + ".", mu: new(sync.Mutex), last: new(uint64), waiting: map[uint64]*attempt{}}
}

// subscribe has got called with the first answer to each attempt, until shut.
func (b *inbox) subscribe(got func(*attempt, *nats.Msg)) (shut func(), err error) {
	sub, err := b.nc.Subscribe(b.prefix+"*", func(m *nats.Msg) {
		number, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, b.prefix), 36, 64)
		if err != nil {
			return
		}
		b.mu.Lock()
		a := b.waiting[number]
		delete(b.waiting, number)
		b.mu.Unlock()
		if a != nil {
			got(a, m)
		}
	})
	if err != nil {
		return nil, err
	}
	return func() { _ = sub.Unsubscribe() }, nil // fails where the connection is closed, which is as good
}

// send sends a request. It is not waiting for an answer where that failed.
func (b *inbox) send(a *attempt, msg *nats.Msg) error {
	b.mu.Lock()
	*b.last++
	a.number = *b.last
	b.waiting[a.number] = a
	b.mu.Unlock()
	msg.Reply = b.prefix + strconv.FormatUint(a.number, 36)
	err := b.nc.PublishMsg(msg)
	if err != nil {
		b.drop(a)
	}
	return err
}

// drop has an attempt wait no more. It is false where the attempt has an answer.
func (b *inbox) drop(a *attempt) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, waits := b.waiting[a.number]
	delete(b.waiting, a.number)
	return waits
}

// Message makes the message of an attempt of one job, or of the jobs of a batch,
// to a subject, a stream subject or a session.
func Message(names subjects.Names, maxPayload int, jobs []*Job) (*nats.Msg, *drover.Error) {
	j := jobs[0]
	n := &j.Notify
	msg := &nats.Msg{Data: j.Body, Header: nats.Header{subjects.HeaderDelivery: {string(j.ID)}}}
	switch n.Kind() {
	case "subject":
		msg.Subject = n.Subject
		if n.Batch != nil {
			msg.Data = batchBody(jobs)
			msg.Header = nats.Header{subjects.HeaderOutcomes: {strconv.Itoa(len(jobs))}}
		}
	case "stream_subject":
		msg.Subject = n.StreamSubject
		msg.Header[subjects.HeaderMessageID] = []string{subjects.MessageID(string(j.ID), j.Outcome.StartedAt)}
	case "session":
		msg.Subject = names.Session(n.Session)
		data, err := sessionReply(j, maxPayload)
		if err != nil {
			return nil, drover.Errorf(drover.CodeInternal, "the outcome of run %s cannot be told as text: %v", j.Run, err)
		}
		msg.Data = data
	default:
		e := drover.Errorf(drover.CodeInternal, "no worker delivers to a %q by itself", n.Kind())
		e.Permanent = true
		return nil, e
	}
	return msg, nil
}

// Judge makes what the runs hear of an attempt from the answer to its message: one
// for each job, in their order.
func Judge(jobs []*Job, answer *nats.Msg) []drover.HeardMessage {
	a := &attempt{jobs: jobs, verdicts: make([]verdict, len(jobs))}
	a.judge(answer)
	return a.heard()
}

// Expired makes the same where no answer came in time.
func Expired(jobs []*Job) []drover.HeardMessage {
	a := &attempt{jobs: jobs, verdicts: make([]verdict, len(jobs))}
	a.late()
	return a.heard()
}

// judge makes verdicts of the answer to an attempt.
func (a *attempt) judge(m *nats.Msg) {
	n := &a.jobs[0].Notify
	switch {
	case len(m.Data) == 0 && m.Header.Get(subjects.HeaderStatus) == "503":
		a.all(verdict{unmade: true, err: nobody(n)})
	case n.StreamSubject != "":
		receipt, err := stored(n.StreamSubject, m.Data)
		a.all(verdict{receipt: receipt, err: err})
	default:
		if err := replyError(where(n), m); err != nil {
			a.all(verdict{err: err})
		} else if n.Batch != nil {
			a.judgeBatch(m.Data)
		} else {
			a.all(verdict{receipt: string(m.Data[:min(len(m.Data), maxReceipt)])})
		}
	}
}

// nobody is the error of a request that nobody gets.
func nobody(n *drover.Notify) *drover.Error {
	if n.StreamSubject != "" {
		return drover.Errorf(drover.CodeUnavailable, "no stream takes subject %q: create it, or correct the subject", n.StreamSubject)
	}
	if n.Session != "" {
		return drover.Errorf(drover.CodeUnavailable, "nobody listens for session %s", n.Session)
	}
	return drover.Errorf(drover.CodeUnavailable, "nobody serves subject %q: start its service, or correct the subject", n.Subject)
}

// replyError is the error that a reply says it is: one of Drover, with its code,
// or one of a NATS service.
func replyError(to string, m *nats.Msg) *drover.Error {
	if len(m.Header) == 0 {
		return nil
	}
	if e := drover.ErrorOf(m.Header.Get(subjects.HeaderCode), m.Data); e != nil {
		return e
	}
	text, code := m.Header.Get(micro.ErrorHeader), m.Header.Get(micro.ErrorCodeHeader)
	if text == "" && code == "" {
		return nil
	}
	return drover.Errorf(drover.CodeFailed, "%s answered with error %s: %s", to, cut(code, maxCode), cut(text, maxNoted))
}

// codeTooLarge is the server's, for a message that its stream does not take.
const codeTooLarge jetstream.ErrorCode = 10054

// stored reads the acknowledgement of a stream.
func stored(subject string, data []byte) (string, *drover.Error) {
	var ack struct {
		Stream   string              `json:"stream"`
		Sequence uint64              `json:"seq"`
		Error    *jetstream.APIError `json:"error"`
	}
	err := json.Unmarshal(data, &ack)
	switch {
	case err == nil && ack.Error != nil:
		e := drover.Errorf(drover.CodeUnavailable, "the stream of subject %q did not take the outcome: %s", subject, cut(ack.Error.Description, maxNoted))
		if ack.Error.ErrorCode == codeTooLarge {
			e.Code, e.Permanent = drover.CodeTooLarge, true
		}
		return "", e
	case err != nil || ack.Stream == "":
		return "", drover.Errorf(drover.CodeFailed, "what answers on stream subject %q is no stream: name the subject of a stream, or notify the subject itself", subject)
	}
	return fmt.Sprintf("stream %s seq %d", ack.Stream, ack.Sequence), nil
}
