package flow

import (
	"container/list"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
)

// held are the runs whose bodies this server drives, or keeps while they wait.
type held struct {
	*Server
	inbox string // where the server takes drives of bodies that it keeps

	mu       sync.Mutex
	runs     map[drover.RunID]*holding
	waiting  list.List // of runs, the one that waits for longest first
	direct   int       // drives that were asked for directly
	draining bool
	calls    context.Context //nolint:containedctx // of drives that were asked for directly
	endCalls context.CancelFunc
	running  sync.WaitGroup
	working  sync.WaitGroup // functions of steps
}

// holding is one run.
type holding struct {
	body   *Body
	drive  int // that is under way, or was last
	fence  int
	cancel context.CancelFunc // nil: it waits
	over   chan struct{}      // closed when the drive that is under way has ended
	place  *list.Element      // among those that wait
}

func newHeld(s *Server) *held {
	h := &held{Server: s, inbox: s.nc.NewInbox(), runs: map[drover.RunID]*holding{}}
	h.calls, h.endCalls = context.WithCancel(context.Background())
	return h
}

// drive drives a run. A drive of it that is under way here is an older one: it
// ends first.
func (h *held) drive(ctx context.Context, def *Def, req *drover.DriveRequest, fence int) error {
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	run, ok := h.enter(ctx, cancel, def, req, fence)
	if !ok {
		return driven(outer, context.Cause(ctx))
	}
	end, err := run.body.Drive(ctx, req, fence)
	h.broke(req, end, run.body.last)
	h.leave(req.RunID, run, end)
	return driven(outer, err)
}

// broke logs a drive whose body panicked, with last in the last drive that it had, or
// did not fit its journal: its author looks for that here first.
func (h *held) broke(req *drover.DriveRequest, end *drover.DriveEnd, last *drover.Error) {
	text, err := "", last
	switch {
	case end != nil && end.Status == drover.DrivePanicked:
		text, err = "the body of a program panicked", end.Error
	case end != nil && end.Status == drover.DriveBlocked:
		text, err = "the body of a program does not fit the journal of its run, which is blocked", end.Error
	case last != nil:
		text = "the body of a program panicked, is not driven again, and undoes what it did"
	default:
		return
	}
	attrs := []any{
		slog.String("run", string(req.RunID)), slog.String("program", req.Program), slog.Int("drive", req.Drive),
		slog.String("error", err.Message),
	}
	if err.Stack != "" {
		attrs = append(attrs, slog.String("stack", err.Stack))
	}
	h.opts.Logger.Warn(text, attrs...)
}

// stepBroke logs a step that panicked: its run need not end by that, and shows the
// stack only in its journal.
func (h *held) stepBroke(run drover.RunID, program string, e drover.Entry) {
	text := "a step of a program panicked"
	if e.Kind == drover.EntryUndo {
		text = "a compensation of a program panicked"
	}
	h.opts.Logger.Warn(text,
		slog.String("run", string(run)), slog.String("program", program), slog.String("step", e.ID), slog.Int("attempt", e.Attempt),
		slog.String("error", e.Error.Message), slog.String("stack", e.Error.Stack))
}

// enter makes a run that of a drive. It is not ok where a newer one has it.
func (h *held) enter(ctx context.Context, cancel context.CancelFunc, def *Def, req *drover.DriveRequest, fence int) (*holding, bool) {
	for {
		h.mu.Lock()
		run := h.runs[req.RunID]
		if run == nil {
			run = &holding{body: def.NewBody(h.fleet, h.bodyOptions(req))}
			run.body.working = &h.working
			h.runs[req.RunID] = run
		}
		if run.cancel == nil {
			h.begin(run, cancel, req.Drive, fence)
			h.mu.Unlock()
			return run, true
		}
		if req.Drive < run.drive || req.Drive == run.drive && fence <= run.fence {
			h.mu.Unlock()
			return nil, false
		}
		run.cancel()
		over := run.over
		h.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
			return nil, false
		}
	}
}

// begin notes that a drive is under way. The lock is held.
func (h *held) begin(run *holding, cancel context.CancelFunc, drive, fence int) {
	run.cancel, run.drive, run.fence, run.over = cancel, drive, fence, make(chan struct{})
	if run.place != nil {
		h.waiting.Remove(run.place)
		run.place = nil
	}
}

// leave notes that a drive has ended. Where the body waits it is kept; of too many
// the one that waits for longest is dropped.
func (h *held) leave(id drover.RunID, run *holding, end *drover.DriveEnd) {
	h.mu.Lock()
	run.cancel = nil
	close(run.over)
	var drop []*Body
	if end != nil && run.body.Kept() && !h.draining {
		run.place = h.waiting.PushBack(id)
		for h.waiting.Len() > max(h.opts.KeepBodies, 0) {
			drop = append(drop, h.evict())
		}
	} else {
		drop = append(drop, run.body)
		delete(h.runs, id)
	}
	h.mu.Unlock()
	for _, body := range drop {
		body.Close()
	}
}

// evict takes the one that waits for longest off. The lock is held.
func (h *held) evict() *Body {
	first := h.waiting.Front()
	id, _ := h.waiting.Remove(first).(drover.RunID)
	body := h.runs[id].body
	delete(h.runs, id)
	return body
}

func (h *held) bodyOptions(req *drover.DriveRequest) BodyOptions {
	run, program := req.RunID, req.Program
	o := BodyOptions{
		Instance: h.opts.Instance, Version: h.opts.Version, Beat: beatEvery,
		Panicked: func(e drover.Entry) { h.stepBroke(run, program, e) },
	}
	if h.opts.KeepBodies > 0 {
		o.Keep = h.inbox
	}
	return o
}

// request takes the drive of a body that is kept, if it can begin at once. A look
// takes none: it asks whether the drive is under way.
func (h *held) request(m *nats.Msg) {
	req := &drover.DriveRequest{}
	taken := json.Unmarshal(m.Data, req) == nil && h.takeDirect(req)
	answer := []byte(`{"taken":false}`)
	if taken {
		answer = []byte(`{"taken":true}`)
	}
	_ = m.Respond(answer)
}

func (h *held) takeDirect(req *drover.DriveRequest) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	run := h.runs[req.RunID]
	if run != nil && run.cancel != nil && req.Drive == run.drive {
		return true // an owner that asked before is gone, and another one asks again
	}
	if run == nil || req.Look || run.cancel != nil || h.draining || h.direct >= h.opts.Concurrency*len(h.programs) || req.Drive <= run.drive {
		return false
	}
	ctx, cancel := context.WithCancel(h.calls)
	h.begin(run, cancel, req.Drive, 1)
	h.direct++
	h.running.Go(func() {
		defer cancel()
		end, err := run.body.Drive(ctx, req, 1)
		h.broke(req, end, run.body.last)
		h.leave(req.RunID, run, end)
		if err = driven(ctx, err); err != nil && ctx.Err() == nil { // its owner asks somebody else, once it is silent
			h.opts.Logger.Warn("a drive was given up", slog.String("run", string(req.RunID)), slog.Any("error", err))
		}
		h.mu.Lock()
		h.direct--
		h.mu.Unlock()
	})
	return true
}

func (h *held) nudge(id drover.RunID, entries int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if run := h.runs[id]; run != nil && run.cancel != nil {
		run.body.Nudge(entries)
	}
}

// returnTime is how long functions of steps may take to return once their contexts
// have ended.
const returnTime = 5 * time.Second

// drain waits for drives that were asked for directly, drops all bodies, and waits
// for the functions of steps that still run.
func (h *held) drain(patience time.Duration) error {
	h.mu.Lock()
	h.draining = true
	h.mu.Unlock()
	late := time.AfterFunc(patience, h.endCalls)
	h.running.Wait()
	late.Stop()
	h.endCalls()
	h.mu.Lock()
	var drop []*Body
	for h.waiting.Len() > 0 {
		drop = append(drop, h.evict())
	}
	h.mu.Unlock()
	for _, body := range drop {
		body.Close()
	}
	returned := make(chan struct{})
	go func() {
		h.working.Wait()
		close(returned)
	}()
	select {
	case <-returned:
		return nil
	case <-time.After(returnTime):
		return drover.Errorf(drover.CodeTimeout, "functions of steps do not return although their contexts ended: return when ctx.Done() is closed")
	}
}
