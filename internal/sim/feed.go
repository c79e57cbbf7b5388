package sim

import (
	"encoding/json"
	"strings"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/partition"
)

type message = partition.Message

// feed is what was delivered to a run of a program, as a plain fold of the log goes on.
type feed struct {
	generation int
	seen       int // entries of the journal
	unread     []fed
	ids        map[string]bool
	waits      map[string]string // the names that nodes wait for
}

// fed is one delivery.
type fed struct{ name, payload string }

// feed holds that each delivery that was accepted is read once, in the order of its
// name, or is unread.
func (l *programLedger) feed(id drover.RunID, m message, step *machine.Step) {
	g, w := step.State.Program, l.w
	f := l.feeds[id]
	if f == nil {
		f = &feed{ids: map[string]bool{}, waits: map[string]string{}}
		l.feeds[id] = f
	}
	if reply, ok := step.Answer.(drover.DeliverReply); ok && !reply.Repeat {
		f.deliver(w, m, reply)
	}
	if g.Generation != f.generation {
		// What was recorded with the end of a journal is not to be seen any more.
		f.generation, f.seen, f.waits = g.Generation, 0, map[string]string{}
		f.unread = unread(w, step.State)
		return
	}
	list, err := w.entries(step.State, f.seen+1)
	if err != nil {
		w.violated("the journal of %s cannot be read: %v", id, err)
		return
	}
	f.seen = g.Entries
	for i := range list {
		f.read(w, id, &list[i])
	}
	if is := unread(w, step.State); !step.State.Terminal() && !equal(is, f.unread) {
		w.violated("after command %d the deliveries %q of run %s should be unread, and %q are", m.Seq, f.unread, id, is)
	}
	if step.State.Terminal() && len(step.State.Unread) > 0 {
		w.saw("Programs05 a delivery was left unread")
	}
}

func (f *feed) deliver(w *World, m message, reply drover.DeliverReply) {
	var req drover.DeliverRequest
	_ = json.Unmarshal(m.Data, &req) // it was accepted
	if req.Hook != "" {              // that is for the ledger of the hooks
		return
	}
	if req.ID != "" && f.ids[req.ID] {
		w.violated("delivery %q of command %d was accepted twice", req.ID, m.Seq)
	}
	f.ids[req.ID] = true
	if reply.Kept {
		w.saw("Programs05 a delivery came before its wait")
	}
	f.unread = append(f.unread, fed{req.Name, text(req.Payload)})
}

// read takes an entry: of a wait that got something, that was the first of its name.
func (f *feed) read(w *World, run drover.RunID, e *drover.Entry) {
	var step drover.Step
	switch {
	case e.Kind == drover.EntryNode && json.Unmarshal(e.Step, &step) == nil && step.Wait != nil:
		f.waits[e.ID] = step.Wait.Name
	case e.Kind == drover.EntryEnded && strings.HasPrefix(e.ID, "hook") && e.Error == nil:
		each(e.Output, func(n int) {
			w.saw("Programs05 a body got what was delivered to a token")
			if w.programs.parcels[n] {
				w.violated("run %s: node %s got delivery %d, which was read before", run, e.ID, n)
			}
			w.programs.parcels[n] = true
		})
	case e.Kind == drover.EntryEnded && e.Attempt == 0 && e.Error == nil && f.waits[e.ID] != "":
		for i, u := range f.unread {
			if u.name != f.waits[e.ID] {
				continue
			}
			if u.payload != text(e.Output) {
				w.violated("run %s: node %s got %s, and the next one was %s", run, e.ID, e.Output, u.payload)
			}
			f.unread = append(f.unread[:i:i], f.unread[i+1:]...)
			w.saw("Programs05 a wait got the delivery that came first")
			return
		}
		w.violated("run %s: node %s got %s, which nobody delivered, or which was read before", run, e.ID, e.Output)
	}
}

func unread(w *World, state *machine.State) (list []fed) {
	for i := range state.Unread {
		if state.Unread[i].Hook != "" {
			continue
		}
		list = append(list, fed{state.Unread[i].Name, text(w.known(state.Unread[i].Payload))})
	}
	return list
}

func equal(a, b []fed) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
