package worker

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/droverhq/drover/internal/partition"
	"github.com/droverhq/drover/subjects"
)

const (
	readPatience   = 5 * time.Second        // for a consumer to be made
	readAgain      = 100 * time.Millisecond // after the log could not be read, doubling
	readAtMost     = 2 * time.Second
	readInactivity = time.Minute // after which the server forgets the consumer of one who is gone
)

// reader reads the log of one partition in order, each message once, and
// without a gap, over consumers that come and go: with each connection, and
// whenever somebody deletes one. Only its own goroutine reads, so nothing can
// overtake what waits at the gate.
type reader struct {
	w    *Worker
	n    int
	next uint64 // the first sequence that it has not given
	last anchor // the latest that was read, by this one or who had the partition before
	room *gate
	give func(*partition.Message)
	lost func() // called once, where the log does not have last any more: nothing is read then
	log  zerolog.Logger
}

var (
	errGap       = errors.New("a message of the log was lost on its way")
	errConnected = errors.New("there is a new connection")
)

// run reads until ctx ends.
func (r *reader) run(ctx context.Context) {
	nc := r.w.js.Conn()
	connected := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(connected)
	pause := readAgain
	for ctx.Err() == nil {
		first := r.next
		err := r.read(ctx, connected)
		if r.next != first {
			pause = readAgain
		}
		if ctx.Err() != nil || errors.Is(err, errConnected) {
			continue
		}
		if errors.Is(err, errRewound) {
			r.lost()
			return
		}
		r.log.Warn().Err(err).Msg("the log could not be read, it is tried again")
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-connected:
		case <-ctx.Done():
		}
		wait.Stop()
		pause = min(2*pause, readAtMost)
	}
}

// read gives messages until something is wrong with the consumer.
func (r *reader) read(ctx context.Context, connected <-chan nats.Status) error {
	// A consumer that lives in memory is gone with its server, and who waits for
	// its messages finds out late. A new connection is a sign.
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	watched := make(chan struct{})
	defer func() { stop(nil); <-watched }()
	go func() {
		defer close(watched)
		select {
		case <-connected:
			stop(errConnected)
		case <-ctx.Done():
		}
	}()
	cons, err := r.consumer(ctx)
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	defer r.w.async(func() { r.w.forget(cons) })
	if there, err := r.w.stands(ctx, r.last); err != nil {
		return errors.Join(context.Cause(ctx), err)
	} else if !there {
		return errRewound // in this order: a consumer in memory does not outlive its server
	}
	from, err := newPuller(r.w.js.Conn(), r.w.names.Commands(), cons.CachedInfo().Name, r.w.share(readBytes, minRead)/2, r.w.alone)
	if err != nil {
		return err
	}
	defer from.stop()
	for count := uint64(1); ; count++ {
		m, err := from.next(ctx)
		if err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if meta.Sequence.Consumer != count {
			return errGap
		}
		r.room.enter(len(m.Data))
		_, run, verb, _ := r.w.names.ParseCommand(m.Subject)
		r.give(&partition.Message{
			Seq: meta.Sequence.Stream, At: meta.Timestamp, Run: run, Verb: verb,
			Data: m.Data, Reply: m.Header.Get(subjects.HeaderReply),
		})
		r.next, r.last = meta.Sequence.Stream+1, anchor{meta.Sequence.Stream, meta.Timestamp.UnixNano()}
	}
}

func (r *reader) consumer(ctx context.Context) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	return r.w.js.CreateConsumer(ctx, r.w.names.Commands(), jetstream.ConsumerConfig{
		FilterSubject:     r.w.names.CommandsOf(r.n),
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       r.next,
		AckPolicy:         jetstream.AckNonePolicy,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: readInactivity,
	})
}

// forget deletes a consumer that is not needed any more. Where that fails the
// server forgets it by itself.
func (w *Worker) forget(cons jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = w.js.DeleteConsumer(ctx, w.names.Commands(), cons.CachedInfo().Name)
}
