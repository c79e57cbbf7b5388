package hook

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
)

// sent is what became of a delivery, as far as its sender knows.
type sent struct {
	payload string
	starts  bool // where nobody holds the token
	reply   *drover.HookReply
	err     error // definite; nil with no reply: it is not known
}

// deliver has a client deliver to the token t, and with a definition start a run
// of it. A client with an id asks again until it knows.
func (w *world) deliver(payload, id, definition string) *sent {
	out := &sent{payload: payload, starts: definition != ""}
	req := &drover.HookRequest{Token: "t", Payload: json.RawMessage(payload), ID: id}
	if definition != "" {
		req.Start = &drover.StartRequest{Hash: w.plan(definition).Hash}
	}
	w.client("client "+payload, req, out)
	return out
}

func (w *world) client(name string, req *drover.HookRequest, out *sent) {
	w.spawn(name, true, func(c *calls) {
		reply, err := c.sender().Deliver(context.Background(), req)
		if errors.Is(err, errKilled) || errors.Is(err, drover.CodeUnavailable) {
			return
		}
		out.reply, out.err = reply, err
	}, func(bool) {
		if out.reply == nil && out.err == nil && req.ID != "" {
			w.client(name, req, out)
		}
	})
}

// start starts a run.
func (w *world) start(id drover.RunID, definition string) {
	w.store(id, drover.VerbStart, drover.StartRequest{Hash: w.plan(definition).Hash})
}

// found counts where payloads are that were accepted: read by waits and
// releases, or unread in a run that has not handed them over.
func (w *world) found() (all map[string]int, of map[drover.RunID]int) {
	all, of = map[string]int{}, map[drover.RunID]int{}
	for _, id := range w.order {
		r := w.runs[id]
		if r.record == nil {
			continue
		}
		s := w.state(r)
		for i := range s.Nodes {
			n := &s.Nodes[i]
			if n.Status == machine.MarkDone {
				w.values(n.Output.JSON, func(p string) { all[p]++; of[id]++ })
			} else if n.Reading != nil {
				for _, v := range n.Reading.Got {
					all[string(v.JSON)]++
					of[id]++
				}
			}
		}
		handed := slices.ContainsFunc(s.Hooks, func(h machine.Hook) bool { return h.Mark == machine.HookHanded })
		for i := range s.Unread {
			of[id]++
			if !handed {
				all[string(s.Unread[i].Payload.JSON)]++
			}
		}
	}
	return all, of
}

// values gives the payloads in an output: numbers, or a list of them.
func (w *world) values(output json.RawMessage, each func(string)) {
	var list []json.RawMessage
	if json.Unmarshal(output, &list) != nil {
		list = []json.RawMessage{output}
	}
	for _, v := range list {
		if s := string(v); s != "" && s != "null" && !strings.HasPrefix(s, "{") {
			each(s)
		}
	}
}

// check holds the world, at rest, to what the package promises.
func (w *world) check(all ...*sent) {
	w.t.Helper()
	w.sweep()
	found, of := w.found()
	for _, s := range all {
		n, taken := found[s.payload], w.taken[s.payload]
		switch {
		case taken > 1:
			w.t.Errorf("%s was accepted %d times", s.payload, taken)
		case taken != n:
			w.t.Errorf("%s was accepted %d times and is there %d times", s.payload, taken, n)
		case s.reply != nil && n != 1:
			w.t.Errorf("%s was accepted, says its sender, and is there %d times", s.payload, n)
		case s.starts && s.err != nil && !errors.Is(s.err, drover.CodeConflict):
			w.t.Errorf("%s was refused, although it starts a run: %v", s.payload, s.err)
		case s.err != nil && n != 0:
			w.t.Errorf("%s was refused with %v, and is there %d times", s.payload, s.err, n)
		}
	}
	for id, r := range w.runs {
		if r.record != nil && strings.HasPrefix(string(id), "r") && of[id] == 0 {
			w.t.Errorf("run %s was started in vain", id)
		}
	}
	w.checkKeys()
	if w.t.Failed() {
		w.t.Fatalf("what happened:\n%s", strings.Join(w.trace, "\n"))
	}
}

// sweep has the sweeper come by, long after.
func (w *world) sweep() {
	w.t.Helper()
	w.now = w.now.AddDate(0, 0, 1)
	w.fail = func() (bool, bool) { return false, false }
	for range 2 {
		var err error
		w.spawn("sweeper", false, func(c *calls) {
			s := &Sweeper{Sender: c.sender(), Scanner: c, Runs: c}
			err = s.Sweep(context.Background())
		}, nil)
		w.settle()
		if err != nil {
			w.t.Fatalf("sweep: %v", err)
		}
	}
}

// checkKeys holds the key and the states to each other.
func (w *world) checkKeys() {
	w.t.Helper()
	held, err := Read(context.Background(), w.hooks, "t")
	if err != nil {
		w.t.Fatal(err)
	}
	if held != nil {
		if r := w.runs[held.Run]; r == nil || r.record == nil || w.state(r).Terminal() || !w.state(r).Holds("t") || held.Starting != nil || len(held.Heirs) > 0 {
			w.t.Errorf("the token is stuck: %+v", held)
		}
	}
	for id, r := range w.runs {
		if r.record == nil {
			continue
		}
		if s := w.state(r); !s.Terminal() && s.Holds("t") && (held == nil || held.Run != id) {
			w.t.Errorf("run %s holds the token, and its key says %+v", id, held)
		}
	}
}
