package flow

import (
	"cmp"
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/droverhq/drover"
)

// EntryEnd is the kind of the Op with which a body ends.
const EntryEnd drover.EntryKind = "end"

// Op is one thing that a body asks for, in its order: for tests. Of an end, ID is
// its status and Input the result.
type Op struct {
	Kind  drover.EntryKind
	ID    string
	Step  json.RawMessage
	Input json.RawMessage
}

// BodyOptions say how a body is driven.
type BodyOptions struct {
	Instance string
	Version  string
	Keep     string        // the inbox where this process takes further drives; "": a body that parks is dropped
	Beat     time.Duration // of heartbeats; 0: none
	Trace    func(Op)      // hears of all that the body asks for, in each drive; nil: nobody does

	// Panicked hears of each attempt of a step or an undo that panicked, in its
	// goroutine, also where it is late and the journal has nothing of it; nil: nobody does.
	Panicked func(attempt drover.Entry)
}

// Body is the body of one run in this process. One drive at a time may use it.
type Body struct {
	def  *Def
	t    Transport
	opts BodyOptions
	c    *core         // nil: not in memory
	hint atomic.Int64  // entries that the journal is said to have
	last *drover.Error // with which it broke in this drive, its last one
	wake chan struct{}

	working *sync.WaitGroup // functions of steps
}

// NewBody makes the body of a run, that is in memory from its first drive on.
func (d *Def) NewBody(t Transport, opts BodyOptions) *Body {
	return &Body{def: d, t: t, opts: opts, wake: make(chan struct{}, 1), working: &sync.WaitGroup{}}
}

// Close drops what is in memory. The defers of the body run.
func (b *Body) Close() {
	if b.c != nil {
		b.c.destroy()
		b.c = nil
	}
}

// Kept reports whether the body is in memory.
func (b *Body) Kept() bool { return b.c != nil }

// Nudge says how many entries the journal has. Any goroutine may call it.
func (b *Body) Nudge(entries int) {
	for old := b.hint.Load(); int64(entries) > old; old = b.hint.Load() {
		if b.hint.CompareAndSwap(old, int64(entries)) {
			break
		}
	}
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// Drive executes the body until it ends or parks, and gives how. Where it parks
// it stays in memory, if it may, and goes on from there with the next drive. An
// error with the code fenced says that another process has the drive, or that the
// run is over: nothing is left to do. With any other, that of ctx among them, the
// drive has to be given to somebody else.
//
// A request that was handed out before is Partial: the journal may have more than
// it says, and what that has is not done again.
func (b *Body) Drive(ctx context.Context, req *drover.DriveRequest, fence int) (*drover.DriveEnd, error) {
	l := &loop{Body: b, req: req, fence: fence, replies: make(chan answered, 1)}
	b.last = nil
	end, err := l.run(ctx)
	if err != nil || end.Status != drover.DriveWaiting || b.opts.Keep == "" {
		b.Close()
	}
	return end, err
}

// loop is one drive.
type loop struct {
	*Body
	req     *drover.DriveRequest
	fence   int
	busy    bool // a command is under way
	replies chan answered
	sent    drover.RecordRequest
	asked   int64 // the hint when it was sent
	state   beatState
	sending sync.WaitGroup
	out     *outbox
	stuck   <-chan struct{} // closed when the outbox has failed; nil: that is known
}

// answered is what came of a command.
type answered struct {
	reply *drover.RecordReply
	more  []drover.Entry // that did not fit into it
	err   error
}

// run drives, anew from the journal as often as that has moved on.
func (l *loop) run(ctx context.Context) (*drover.DriveEnd, error) {
	err := l.open(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	defer l.sending.Wait()
	defer cancel(nil)
	l.openOutbox(ctx)
	defer l.heartbeats(ctx, cancel)()
	for stale := 0; ; stale++ {
		var end *drover.DriveEnd
		if err == nil && (l.req.Partial || stale > 0) {
			err = l.claim(ctx)
		}
		if err == nil {
			end, err = l.drive(ctx)
		}
		switch code := drover.CodeOf(err, ""); {
		case err == nil:
			return end, nil
		case context.Cause(ctx) != nil:
			return nil, context.Cause(ctx)
		case code == drover.CodeStale:
			if stale > 0 { // the record of the run may be a moment behind
				_ = pause(ctx)
			}
			err = l.reopen(ctx)
		case code == drover.CodeFenced, code == drover.CodeForbidden, code == drover.CodeNotFound:
			return nil, &drover.Error{Code: drover.CodeFenced, Message: err.Error()}
		default:
			return nil, err
		}
	}
}

// open has the body in memory, and as far as the request says. One that is kept
// goes on only if it is of the same journal: a run that began anew, or was deleted
// and started once more, has another seed.
func (l *loop) open(ctx context.Context) error {
	from := cmp.Or(l.req.From, 1)
	if l.c != nil && l.c.have >= from-1 && l.c.at == l.req.Records && l.c.req.Seed == l.req.Seed {
		l.c.req.Drive, l.c.req.Token, l.c.last = l.req.Drive, l.req.Token, l.req.Last
		l.c.learn(l.req.Journal)
		if l.c.have < l.req.Entries {
			more, err := l.t.Journal(ctx, l.req.RunID, l.c.have+1)
			if err != nil {
				return behind(err)
			}
			l.c.learn(more.Journal)
		}
		l.state.note(l.c.at, l.c.have)
		return nil
	}
	l.Close()
	if l.req.Partial || from > 1 {
		return l.reopen(ctx)
	}
	l.begin(l.req)
	return nil
}

// reopen reads the journal, and has the body begin at the top.
func (l *loop) reopen(ctx context.Context) error {
	l.Close()
	got, err := l.t.Journal(ctx, l.req.RunID, 1)
	if err != nil {
		return err
	}
	req := *l.req
	req.Input, req.Journal, req.Records, req.Entries, req.From, req.Partial = got.Input, got.Journal, got.Records, got.Entries, 0, false
	l.begin(&req)
	return nil
}

// claim takes the drive from whoever may have it as well, before anything is done
// that he may have done: from then on nothing of his is recorded.
func (l *loop) claim(ctx context.Context) error {
	var m drover.RecordRequest
	l.fill(&m, l.c.at, l.c.have)
	reply, err := l.t.Record(ctx, l.req.RunID, &m)
	switch {
	case err != nil:
		return err
	case !reply.Driving:
		return drover.Errorf(drover.CodeFenced, "run %s is %s, and drive %d is over", l.req.RunID, reply.Status, l.req.Drive)
	case reply.Records != l.c.at:
		return drover.Errorf(drover.CodeStale, "run %s has %d records, and %d were known", l.req.RunID, reply.Records, l.c.at)
	}
	l.c.last = reply.Last
	return nil
}

func (l *loop) begin(req *drover.DriveRequest) {
	own := *req
	own.Journal = nil
	l.c = newCore(l.def, &own, l.opts.Trace)
	l.c.working, l.c.panics = l.working, l.opts.Panicked
	l.c.learn(req.Journal)
	l.c.at, l.c.last = req.Records, req.Last
	l.hint.Store(0)
	l.state.note(req.Records, l.c.have)
}

// drive is one way through the body: all branches until they are blocked, then
// the next entry; and where there is none, what is to be sent, begun or awaited.
func (l *loop) drive(ctx context.Context) (*drover.DriveEnd, error) {
	for {
		c := l.c
		c.out = l.out
		c.settle()
		if err := l.streamsFailed(ctx); err != nil {
			return nil, err
		}
		switch {
		case c.broken != nil && !l.busy:
			return l.finish(ctx, c.broken)
		case c.broken != nil:
		case len(c.journal) > 0:
			c.consume()
			continue
		case c.held() && !c.burst.sent && l.busy: // what is said of this drive may change
		case c.held() && !c.burst.sent && !c.last:
			c.breakOff(c.burst.end())
			continue
		default:
			c.begin()
			c.send()
			l.tellBurst()
			if end, err := l.sendAll(ctx); end != nil || err != nil {
				return end, err
			}
		}
		if end, err := l.wait(ctx); end != nil || err != nil {
			return end, err
		}
	}
}

// wait waits for something to happen. It gives the end of the drive.
func (l *loop) wait(ctx context.Context) (*drover.DriveEnd, error) {
	select {
	case a := <-l.replies:
		l.busy = false
		if a.err != nil {
			return l.refused(ctx, a.err)
		}
		return l.answered(a)
	case d := <-l.c.done:
		l.c.record(d)
	case <-l.wake:
	case <-l.stuck:
		l.stuck = nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return nil, nil //nolint:nilnil // the drive goes on
}
