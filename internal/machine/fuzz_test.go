package machine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

// dice are choices made by bytes. When they are used up, the first is chosen.
type dice struct{ bytes []byte }

func (d *dice) roll(n int) int {
	if len(d.bytes) == 0 {
		return 0
	}
	b := d.bytes[0]
	d.bytes = d.bytes[1:]
	return int(b) % n
}

// play applies random commands, then lets everything that is outstanding end
// until the run does, which it must.
func play(t testing.TB, data []byte) {
	d, late := &dice{data[:len(data)*2/3]}, &dice{data[len(data)*2/3:]} // while the run goes on, and once it is over
	g := makeGraph(d, true)
	w := newWorld(t, g.text)
	w.run = drover.ChildRunID(drover.CallID{Run: "up", Node: "n", Attempt: 1})
	w.startAs(drover.StartRequest{
		Input: json.RawMessage(`[1,"` + strings.Repeat("x", 3000) + `",3]`), Notify: subscribers(), Hooks: [][]string{nil, {"t0"}, {"n1", "t0", "t9"}}[d.roll(3)],
		Parent: &drover.Parent{Call: drover.CallID{Run: "up", Node: "n", Attempt: 1}, Depth: 1},
	})
	for range 300 {
		if len(d.bytes) == 0 || w.s.Terminal() {
			break
		}
		w.random(d, &g)
	}
	for round := 0; !w.s.Terminal(); round++ {
		if round > 2000 {
			t.Fatalf("%s\ndoes not end: %s", g.text, w.record)
		}
		if len(Why(w.p, w.s)) == 0 {
			t.Fatalf("%s\nwaits for nothing: %s", g.text, w.record)
		}
		w.end(&g, round)
	}
	w.view()
	frozen := w.frozen()
	w.random(&dice{[]byte{1, 2, 3, 4, 5, 6}}, &g)
	if w.frozen() != frozen {
		t.Fatal("a terminal run changed")
	}
	w.afterwards(late)
}

// subscribers are those of random runs, one of a kind, as their deliveries differ.
func subscribers() drover.NotifyList {
	return drover.NotifyList{
		{Subject: "a.b", MaxAge: drover.Duration(3 * time.Minute)},
		{URL: "https://x.test", Inline: true, MaxAttempts: 2, MaxAge: drover.Duration(2 * time.Minute)},
		{Function: "f", MaxAge: drover.Duration(time.Minute)},
		{Function: "f", Inline: true, MaxAge: drover.Duration(2 * time.Minute)},
	}
}

// random sends one random command.
func (w *world) random(d *dice, g *graph) {
	if d.roll(3) == 1 {
		w.pass(time.Duration(d.roll(12)-2) * time.Second)
	}
	id := g.nodes[d.roll(len(g.nodes))].id
	if d.roll(3) == 1 {
		id += fmt.Sprintf("#%d", d.roll(3))
	}
	if d.roll(8) == 1 {
		id += "/undo"
	}
	if len(w.s.Active) > 0 && d.roll(4) > 0 { // something that is outstanding
		a := w.s.Active[d.roll(len(w.s.Active))]
		id = w.name(a)
	}
	id += fmt.Sprintf("@%d", 1+d.roll(3))
	switch d.roll(18) {
	case 0, 1, 2:
		w.ok(id, []string{`1`, `null`, `"` + strings.Repeat("y", 2500) + `"`}[d.roll(3)])
	case 3, 4:
		w.fail(id, drover.Error{Message: "bad", Permanent: d.roll(4) == 1, RetryAfter: drover.Duration(d.roll(2)) * drover.Duration(time.Second)})
	case 5:
		w.beat(id)
	case 6:
		w.tick()
	case 7:
		w.deliver([]string{"x", "y", "z"}[d.roll(3)], `1`, []string{"", "1", "2"}[d.roll(3)])
	case 8:
		w.child(id, []drover.Status{drover.StatusCompleted, drover.StatusFailed, drover.StatusCancelled}[d.roll(3)], `5`, nil)
	case 9:
		if d.roll(10) == 1 {
			w.stop("random")
		}
	case 10:
		w.answer(id, drover.ResultMessage{Token: "forged"})
	case 11:
		if deadline := w.s.Deadline(); deadline > 0 && deadline.Time().After(w.now) {
			w.now = deadline.Time()
		}
		w.tick()
	case 12, 13:
		w.hookFrom(drover.DeliverRequest{
			Hook: []string{"t0", "n1", g.nodes[d.roll(len(g.nodes))].id}[d.roll(3)], Claim: uint64(d.roll(3)),
			Payload: json.RawMessage([]string{`1`, `3`, `"` + strings.Repeat("z", 2500) + `"`}[d.roll(3)]), ID: []string{"", "1", "2"}[d.roll(3)],
		})
	case 14, 15:
		w.randomClaim(d)
	case 16, 17:
		w.randomDelivery(d)
	}
}

// randomClaim tells of a hook that is there, or of one that is not.
func (w *world) randomClaim(d *dice) {
	m := drover.ClaimedMessage{Revision: uint64(d.roll(3))}
	if m.Revision == 0 {
		m.Owner, m.Lost = []drover.RunID{"other", ""}[d.roll(2)], d.roll(2) == 1
	}
	node, token := "n1", "t0"
	if len(w.s.Hooks) > 0 {
		h := w.s.Hooks[d.roll(len(w.s.Hooks))]
		if token = h.Token; h.Node > 0 {
			node = string(w.p.nodes[h.Node-1].id)
		}
	}
	if d.roll(5) == 1 {
		node = ""
	}
	w.says(node, token, m)
}

// name is what is outstanding, as a call id without its run and attempt.
func (w *world) name(a Active) string {
	id := drover.CallID{Run: "r", Node: w.plan().nodes[a.Node].id, Item: a.Item, Undo: a.Undo, Attempt: 1}.String()
	return strings.TrimSuffix(strings.TrimPrefix(id, "r/"), "@1")
}

// end ends the oldest thing that is outstanding, as its fate is.
func (w *world) end(g *graph, round int) {
	if len(w.s.Active) == 0 {
		w.t.Fatalf("nothing is outstanding: %s", w.record)
	}
	a := w.s.Active[round%len(w.s.Active)]
	n := w.plan().nodes[a.Node]
	id := fmt.Sprintf("%s@%d", w.name(a), a.Attempt)
	fails := false
	for _, x := range g.nodes {
		fails = fails || x.id == string(n.id) && x.fails && !a.Undo
	}
	switch a.Kind {
	case ActiveCall:
		if fails {
			w.fail(id, drover.Error{Message: "fate"})
		} else {
			w.ok(id, `1`)
		}
	case ActiveChild:
		if fails {
			w.child(id, drover.StatusFailed, "", drover.Errorf("x", "fate"))
		} else {
			w.child(id, drover.StatusCompleted, `2`, nil)
		}
	case ActiveWait:
		w.feed(n)
	case ActivePause, ActiveSleep:
		if w.now.Before(a.Due.Time()) {
			w.now = a.Due.Time()
		}
		w.tick()
	}
}

// feed gives a wait what it waits for.
func (w *world) feed(n *node) {
	if !n.hooked() {
		w.deliver(n.step.Wait.Name, `3`, "")
		return
	}
	h := w.s.Hooks[w.s.hookOf(n.target)]
	if h.Mark == HookClaiming {
		w.owned(string(n.id), h.Token)
		return
	}
	w.deliverHook(h.Token, `3`, "")
}

func FuzzApply(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 150 {
		data := make([]byte, 20+rng.IntN(500))
		for i := range data {
			data[i] = byte(rng.IntN(256))
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { play(t, data) })
}

// fate is how a dumb model says that a run ends: it walks through the nodes
// once, and knows nothing of order, slots or time.
func (g *graph) fate(p *Plan) (drover.Status, map[string]drover.NodeStatus) {
	ends := map[string]drover.NodeStatus{}
	status := drover.StatusCompleted
	for i := range g.nodes {
		n := &g.nodes[i]
		end := drover.NodeDone
		for _, j := range n.deps {
			dep := &g.nodes[j]
			switch {
			case n.require == "terminal", ends[dep.id] == drover.NodeDone:
			case n.require == "succeeded", ends[dep.id] == drover.NodeFailed && !dep.continues:
				end = drover.NodeSkipped
			}
		}
		if end == drover.NodeDone && n.kind == "from" && ends[g.nodes[n.hook].id] != drover.NodeDone {
			end = drover.NodeFailed
			if !n.continues && p.nodes[p.index[drover.NodeID(n.id)]].vital {
				status = drover.StatusFailed
			}
		}
		if end == drover.NodeDone && n.fails && (!n.fan || !n.continues) {
			end = drover.NodeFailed
			if !n.continues && p.nodes[p.index[drover.NodeID(n.id)]].vital {
				status = drover.StatusFailed
			}
		}
		ends[n.id] = end
	}
	return status, ends
}

func TestFateAgreesWithADumbModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 400 {
		data := make([]byte, 120)
		for i := range data {
			data[i] = byte(rng.IntN(256))
		}
		g := makeGraph(&dice{data}, false)
		w := newWorld(t, g.text)
		w.start(`[1,2,3]`)
		for !w.s.Terminal() {
			w.end(&g, rng.IntN(1000))
		}
		status, ends := g.fate(w.p)
		got := w.s.Status
		if w.s.Undo != nil {
			got = drover.StatusFailed
		}
		if got != status {
			t.Fatalf("%s\nended %s (%v), the model says %s", g.text, got, w.s.Error, status)
		}
		for i, n := range w.p.nodes {
			mark := w.s.Nodes[i].Status.status()
			if status == drover.StatusCompleted && n.needed && mark != ends[string(n.id)] {
				t.Fatalf("%s\nnode %s is %s, the model says %s", g.text, n.id, mark, ends[string(n.id)])
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	w := newWorld(f, fanText)
	w.start(list(40))
	w.ok("a#3@1", `{"x":1}`)
	w.fail("a#4@1", drover.Error{Message: "no"})
	f.Add(w.record)
	w = newWorld(f, fanText)
	w.start(list(4000))
	f.Add(w.record)
	w = newWorld(f, restarting)
	w.startAs(drover.StartRequest{Hooks: []string{"t"}})
	w.hookFrom(drover.DeliverRequest{Hook: "t", ID: "a", Respond: "inbox"})
	w.deliverHook("t", `1`, "")
	f.Add(w.record)
	f.Add([]byte(`{"V":1,"run":"r","n":[{}],"act":[[2,99,0,-1,1,5]]}`))
	f.Add([]byte{packed, 1, 2, 3})
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Decode(data)
		if err != nil {
			return
		}
		again, err := Encode(s)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Decode(again)
		if err != nil {
			t.Fatalf("encoded what cannot be decoded: %v\n%s", err, again)
		}
		if twice, _ := Encode(back); !bytes.Equal(again, twice) {
			t.Fatalf("%s\n%s", again, twice)
		}
	})
}

func FuzzCommand(f *testing.F) {
	for verb, body := range map[string]string{
		"start": `{"workflow":"w","input":{"a":1},"notify":{"subject":"a.b"},"tags":{"k":"v"}}`, "stop": ``, "tick": `x`,
		"deliver": `{"name":"x","payload":[1]}`, "result": `{"call":"r/n@1","token":"t","output":1}`,
		"child": `{"call":"r/n#2/undo@1","child":"c"}`, "heard": `{"delivery_id":"r:terminal:0"}`, "bogus": `{}`,
		"hold": `{"waiter":"a","for":"1m"}`, "consume": `{"waiter":"a"}`, "release": `{"waiter":"a"}`, "replay": `{"delivery_id":"r:terminal:0"}`,
		"claimed": `{"hook":"t","claim":"r/n","proof":"x","revision":3}`,
		"record":  `{"drive":1,"fence":1,"token":"t","instance":"i","records":[{"kind":"node","id":"a","step":{"sleep":"1s"}}],"end":{"status":"waiting"}}`,
	} {
		f.Add(verb, []byte(body))
	}
	p := compileText(f, diamond)
	f.Fuzz(func(t *testing.T, verb string, data []byte) {
		c, _, bad := DecodeCommand(1, epoch, "r", verb, data, "")
		if (c == nil) == (bad == nil) {
			t.Fatal("a command is either decoded or refused")
		}
		if bad != nil {
			return
		}
		if _, err := Apply(nil, nil, c, nil); err != nil {
			t.Fatal(err)
		}
		start := &Command{Seq: 1, At: epoch, Run: "r", Verb: drover.VerbStart, Start: &Start{Hash: p.Hash}}
		step, err := Apply(p, nil, start, nil)
		if err != nil || step.Refused != nil {
			t.Fatal(err, step.Refused)
		}
		c.Seq = 2
		if step, err = Apply(p, step.State, c, nil); err != nil {
			t.Fatal(err)
		}
		if err := step.State.Check(p); err != nil {
			t.Fatal(err)
		}
	})
}
