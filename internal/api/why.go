package api

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// maxQueues is how many functions one answer tells the queues of.
const maxQueues = 32

// maxUnreadOf is how many names and tokens one answer tells the unread deliveries of.
const maxUnreadOf = 20

// why adds to what the record says what the queues of its calls say.
func (s *Service) why(ctx context.Context, req *drover.RunRequest) (any, error) {
	plan, state, err := s.load(ctx, req.RunID)
	if err != nil {
		return nil, err
	}
	reply := drover.WhyReply{
		RunID: state.Run, Status: state.Status, Reasons: machine.Why(plan, state),
		Subscribers: len(state.Notify), Unread: len(state.Unread), UnreadOf: machine.UnreadOf(state, maxUnreadOf),
	}
	if state.Terminal() {
		reply.Error = state.Error
	}
	if reply.Reasons == nil {
		reply.Reasons = []drover.Reason{}
	}
	known := map[drover.FunctionName]string{}
	for i := range reply.Reasons {
		r := &reply.Reasons[i]
		function := drover.FunctionName("")
		switch r.Waiting {
		case "call":
			function = drover.FunctionName(r.On)
		case "subscriber":
			function = machine.QueuedFor(state, r)
		case "drive":
			r.Text += s.unserved(ctx, plan, state)
		}
		if function == "" {
			continue
		}
		text, ok := known[function]
		if !ok && len(known) < maxQueues {
			text = s.queue(ctx, function)
			known[function] = text
		}
		r.Text += text
	}
	return reply, nil
}

// unserved says that nobody serves the program of a run whose drive waits for any
// process that does, or nothing.
func (s *Service) unserved(ctx context.Context, plan *machine.Plan, state *machine.State) string {
	g := state.Program
	if g == nil || g.State != machine.DriveQueued || g.Keep != "" || g.Version != "" {
		return ""
	}
	program := plan.Definition.Program
	c, err := s.js.Consumer(ctx, s.Names.Calls(), s.Names.Consumer(machine.DriveFunction(program, "")))
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		return fmt.Sprintf("; no process has ever served a program named %s: start one, or end this run by `drover stop --force` and start it with the right name", program)
	case err == nil && c.CachedInfo().NumWaiting == 0 && c.CachedInfo().NumAckPending == 0:
		return "; nobody serves it now: start a process that does"
	}
	return ""
}

// queue says in a sentence who serves a function, or nothing where that cannot
// be found out.
func (s *Service) queue(ctx context.Context, function drover.FunctionName) string {
	if _, err := drover.ParseFunctionName(string(function)); err != nil {
		return ""
	}
	c, err := s.js.Consumer(ctx, s.Names.Calls(), s.Names.Consumer(function))
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Sprintf("; no function named %s has ever connected: start one", function)
	}
	if err != nil {
		return ""
	}
	info := c.CachedInfo()
	figures := queued(info.NumPending, info.NumAckPending)
	switch {
	case info.NumWaiting > 0:
		return "; " + figures
	case info.NumAckPending > 0:
		return "; its instances are busy: " + figures
	default:
		return fmt.Sprintf("; nobody is connected who performs %s: start one (%s)", function, figures)
	}
}

// queued says how many calls wait and are performed.
func queued(waiting uint64, performed int) string {
	text := fmt.Sprintf("%d calls of it wait in the queue, ", waiting)
	if waiting == 1 {
		text = "1 call of it waits in the queue, "
	}
	if performed == 1 {
		return text + "1 is being performed"
	}
	return text + fmt.Sprintf("%d are being performed", performed)
}
