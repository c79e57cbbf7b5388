package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// What one read of a stream asks for.
const (
	streamBatch = 256
	streamBytes = 4 << 20
)

// The statuses with which the server ends what it answers to a read.
const (
	statusEnd     = "204"
	statusNothing = "404"
	statusNobody  = "503"
)

// Stream reads a stream that a program writes, from its first chunk on: what is
// there, however late, and then each chunk as it comes. It ends when the body has
// closed the stream, and else when the run is over and all has been read; a stream
// that the body never writes has no chunk.
//
// The numbers of chunks have no gap and no repeat, also where the connection is
// lost for a while. The error, which ends it, has the code not_found where there
// is no such run.
//
// It reads the stream of the server itself, which takes the rights that the page
// on security names for readers.
func (c *Client) Stream(ctx context.Context, run drover.RunID, id string) iter.Seq2[drover.Chunk, error] {
	return func(yield func(drover.Chunk, error) bool) {
		if err := c.readStream(ctx, run, id, func(chunk drover.Chunk) bool { return yield(chunk, nil) }); err != nil {
			yield(drover.Chunk{}, err)
		}
	}
}

// reader is how far a stream has been read.
type reader struct {
	c       *Client
	e       *ear
	subject string
	next    uint64 // sequence
	number  int    // of the last chunk
	ended   bool   // by its writer
	over    bool   // the run is
}

func (c *Client) readStream(ctx context.Context, run drover.RunID, id string, yield func(drover.Chunk) bool) error {
	if _, err := drover.ParseNodeID(id); err != nil {
		return drover.Errorf(drover.CodeInvalidID, "id %.100q of a stream must be 1 to 100 bytes without # . / * > or white space", id)
	}
	e, err := c.listen(run, false)
	if err != nil {
		return err
	}
	defer e.close()
	r := &reader{c: c, e: e, subject: c.names.Stream(run, id), next: 1}
	hints, err := c.nc.Subscribe(r.subject, func(*nats.Msg) { e.signal() })
	if err != nil {
		return drover.Errorf(drover.CodeUnavailable, "cannot listen to stream %s of run %s: %v", id, run, err)
	}
	e.subs = append(e.subs, hints)
	return r.read(ctx, yield)
}

// read reads until the end.
func (r *reader) read(ctx context.Context, yield func(drover.Chunk) bool) error {
	look, asked, answered := true, time.Now(), false
	for quiet := lookFirst; ; {
		got, err := r.readAll(ctx, yield)
		switch {
		case ctx.Err() != nil:
			return r.e.cut(ctx)
		case err == nil && (r.ended || !got.wanted):
			return nil
		case err == nil && look && !r.over:
			r.over, err = r.c.isOver(ctx, r.e.run)
		case err == nil && r.over:
			var last uint64
			if last, err = r.last(ctx); err == nil && last < r.next {
				return nil
			}
		}
		// A fleet that is down for a while is no reason to give up, once it was there.
		patient := errors.Is(err, drover.CodeUnavailable) && !r.c.nc.IsClosed() && (answered || time.Since(asked) < r.c.patience)
		if err != nil && !patient {
			return err
		}
		answered = answered || err == nil
		if got.chunks > 0 {
			quiet = lookFirst
		}
		if look, err = r.wait(ctx, quiet, err != nil || r.over); err != nil {
			return err
		}
		quiet = min(2*quiet, lookAtMost)
	}
}

// wait waits until there may be more, and says whether to look at the run. Soon is
// for what is tried again.
func (r *reader) wait(ctx context.Context, quiet time.Duration, soon bool) (look bool, err error) {
	if soon {
		quiet = watchPause
	}
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	select {
	case <-r.e.hint:
	case <-r.e.ended:
		r.over = true
	case <-timer.C:
		look = true
	case s := <-r.e.status:
		if s == nats.CLOSED {
			return false, r.e.lost()
		}
		look = true
	case <-ctx.Done():
		return false, r.e.cut(ctx)
	}
	return look, nil
}

// progress is what came of a read.
type progress struct {
	chunks int
	wanted bool // whoever reads wants more
}

// readAll reads what is there.
func (r *reader) readAll(ctx context.Context, yield func(drover.Chunk) bool) (progress, error) {
	p := progress{wanted: true}
	for more := true; more && !r.ended; {
		var list []*nats.Msg
		var err error
		list, more, err = r.fetch(ctx)
		for _, m := range list {
			chunk, err := r.take(m)
			if err != nil || r.ended {
				return p, err
			}
			p.chunks++
			if p.wanted = yield(chunk); !p.wanted {
				return p, nil
			}
		}
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

// take reads one message.
func (r *reader) take(m *nats.Msg) (drover.Chunk, error) {
	sequence, err := strconv.ParseUint(m.Header.Get(subjects.HeaderSequence), 10, 64)
	if err != nil {
		return drover.Chunk{}, drover.Errorf(drover.CodeUnavailable, "an answer to a read of %s has no sequence", r.subject)
	}
	number, err := strconv.Atoi(m.Header.Get(subjects.HeaderChunk))
	if err != nil || number != r.number+1 {
		return drover.Chunk{}, drover.Errorf(drover.CodeInternal, "the message after chunk %d on %s has the number %q: somebody else has written or removed what is there",
			r.number, r.subject, m.Header.Get(subjects.HeaderChunk))
	}
	r.next, r.number = sequence+1, number
	r.ended = m.Header.Get(subjects.HeaderEnd) != ""
	at, _ := time.Parse(time.RFC3339Nano, m.Header.Get(subjects.HeaderTimeStamp))
	return drover.Chunk{Number: number, Type: drover.ChunkType(m.Header.Get(subjects.HeaderType)), Data: m.Data, At: at}, nil
}

// fetch asks any replica for the next messages, and says whether there are more.
// What came before an error counts.
func (r *reader) fetch(ctx context.Context) (list []*nats.Msg, more bool, err error) {
	ask, err := encode("stream", map[string]any{"next_by_subj": r.subject, "seq": r.next, "batch": streamBatch, "max_bytes": streamBytes})
	if err != nil {
		return nil, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	lost := func(err error) error {
		return drover.Errorf(drover.CodeUnavailable, "stream %s cannot be read: %v", r.subject, err)
	}
	inbox := r.c.nc.NewInbox()
	sub, err := r.c.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, false, lost(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := r.c.nc.PublishRequest(subjects.ReadDirectMany(r.c.names.Streams()), inbox, ask); err != nil {
		return nil, false, lost(err)
	}
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return list, false, lost(err)
		}
		switch status := m.Header.Get(subjects.HeaderStatus); status {
		case "":
			list = append(list, m)
		case statusEnd:
			return list, m.Header.Get(subjects.HeaderLeft) != "0", nil
		case statusNothing:
			return list, false, nil
		case statusNobody:
			return list, false, lost(errors.New("no server has it; was the fleet set up by a worker that knows of streams?"))
		default:
			return list, false, lost(fmt.Errorf("%s %s", status, m.Header.Get(subjects.HeaderDescription)))
		}
	}
}

// last asks the leader for the sequence of the last message; 0: there is none.
func (r *reader) last(ctx context.Context) (uint64, error) {
	ask, err := encode("stream", map[string]any{"last_by_subj": r.subject})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	m, err := r.c.nc.RequestWithContext(ctx, subjects.ReadLatest(r.c.names.Streams()), ask)
	if err != nil {
		return 0, drover.Errorf(drover.CodeUnavailable, "the end of stream %s cannot be read: %v", r.subject, err)
	}
	var a struct {
		Message struct {
			Sequence uint64 `json:"seq"`
		} `json:"message"`
		Error *struct {
			Code        int    `json:"code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	switch err := json.Unmarshal(m.Data, &a); {
	case err != nil:
		return 0, drover.Errorf(drover.CodeUnavailable, "the end of stream %s cannot be read: %v", r.subject, err)
	case a.Error != nil && a.Error.Code != 404:
		return 0, drover.Errorf(drover.CodeUnavailable, "the end of stream %s cannot be read: %s", r.subject, a.Error.Description)
	}
	return a.Message.Sequence, nil
}

// isOver reports whether a run is over.
func (c *Client) isOver(ctx context.Context, run drover.RunID) (bool, error) {
	reply, err := c.Status(ctx, drover.RunRequest{RunID: run, Brief: true})
	return err == nil && reply.Run.Status.Terminal(), err
}
