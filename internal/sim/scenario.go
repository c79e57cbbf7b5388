package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/droverhq/drover"
)

// Report says what happened in a world.
type Report struct {
	Seed      uint64
	Runs      int
	Ended     map[drover.Status]int
	Steps     int
	Commits   int
	Crashes   int
	Handovers int
	Repeats   int // calls that were queued more than once
	Dead      int
	Answers   int           // yes and no
	Length    time.Duration // in the time of the world

	Deliveries Deliveries // of outcomes
	Seen       Seen

	Senders     int  // deliveries to tokens that were tried
	Delivered   int  // that were accepted
	Successions int  // times that a run handed its hooks over
	Swept       bool // a sweeper had to free a token

	Drives int // of programs
	Left   int // values of journals that were over long before
}

// String is the report as one line.
func (r Report) String() string {
	return fmt.Sprintf("seed %d: %d runs %v, %d events, %d commits, %d crashes, %d dead letters, %v",
		r.Seed, r.Runs, r.Ended, r.Steps, r.Commits, r.Crashes, r.Dead, r.Length)
}

// FaultsOf are the faults of a seed: bad enough to hit every path, in some
// worlds so bad that little gets on before they stop.
func FaultsOf(seed uint64) Faults {
	f := Faults{
		Fail: 0.03, Unknown: 0.03, Slow: 0.03, Repeat: 0.1, Lose: 0.05,
		Crash: 0.004, Zombie: 0.002, Handover: 0.002,
	}
	if seed%4 == 3 {
		f.Fail, f.Unknown, f.Crash, f.Zombie, f.Handover = 0.1, 0.1, 0.02, 0.01, 0.01
	}
	if seed%3 == 2 {
		f.Skew = 5 * time.Minute
	}
	return f
}

// Run lives the world of a seed to its end. The error is the first promise
// that was broken.
func Run(seed uint64, faults Faults) (Report, error) {
	w := newWorld(seed, faults)
	begin := w.now
	w.take()
	for n := 1 + w.rng.IntN(3); n > 0; n-- {
		w.client(fmt.Sprintf("run%d", n))
	}
	if w.chance(0.5) {
		w.vandal()
	}
	w.at(w.now.Add(trouble), w.calm)
	w.live(begin)
	return w.report(begin), w.failure
}

// RunHooks lives the world of a seed in which runs claim tokens, and senders
// deliver to whoever holds them. tell, if not nil, is told all that happens.
func RunHooks(seed uint64, faults Faults, tell func(format string, args ...any)) (Report, error) {
	return runHooks(newWorld(seed, faults), tell)
}

// RunSuccessors lives the same, but all runs have those who are told of them, and
// their successors too.
func RunSuccessors(seed uint64, faults Faults, tell func(format string, args ...any)) (Report, error) {
	w := newWorld(seed, faults)
	w.told.heirs = map[drover.RunID]bool{}
	return runHooks(w, tell)
}

func runHooks(w *World, tell func(format string, args ...any)) (Report, error) {
	w.tell = tell
	begin := w.now
	w.take()
	w.inhabit()
	w.at(w.now.Add(trouble), w.calm)
	w.at(w.now.Add(12*time.Minute), func() { w.settling(120) })
	w.live(begin)
	if w.failure == nil {
		w.audit()
	}
	for _, p := range slices.Clone(w.processes) { // a failure left them
		p.over = true
		p.stop()
	}
	return w.report(begin), w.failure
}

// live lets a world go on until everything is over, and looks at all of it.
func (w *World) live(begin time.Time) {
	for w.next() {
		if w.steps > 400_000 || w.now.Sub(begin) > 100*24*time.Hour {
			w.violated("it does not end: %s", w.unsettled())
		}
		if w.faults == (Faults{}) && w.steps%16 == 0 && w.settled() && w.quiet() {
			break
		}
	}
	if left := w.unsettled(); left != "" && w.failure == nil {
		w.violated("nothing happens any more: %s", left)
	}
	if w.failure == nil {
		w.account()
		w.replay()
	}
}

func (w *World) report(begin time.Time) Report {
	report := Report{
		Seed: w.Seed, Runs: len(w.records), Ended: map[drover.Status]int{}, Steps: w.steps,
		Commits: w.commits, Crashes: w.crashes, Handovers: w.handovers, Repeats: w.repeats, Dead: len(w.dead), Answers: w.accepted + len(w.refused), Length: w.now.Sub(begin),
	}
	report.Deliveries, report.Seen = w.told.report(), w.seen
	for _, f := range w.finals {
		report.Ended[f.status]++
	}
	if w.hooked != nil {
		report.Successions, report.Swept = w.hooked.handovers, w.hooked.swept
		for _, n := range w.hooked.ledger.taken {
			report.Delivered += n
		}
		for _, p := range w.hooked.parcels {
			report.Senders += p.tries
		}
	}
	return report
}

// calm ends the faults, some minutes after the beginning.
func (w *World) calm() { w.faults = Faults{} }

// trouble is how long things may go wrong.
const trouble = 2 * time.Minute

// quiet reports whether the owner of the lease is done with all of the log.
func (w *World) quiet() bool {
	for _, o := range w.owners {
		if o.epoch == w.lease.epoch && !o.dead {
			return o.p.Cursor() == uint64(len(w.log))+1
		}
	}
	return false
}

// client starts a run, feeds its waits, and may stop it.
func (w *World) client(name string) {
	g := generator{w: w}
	req := drover.StartRequest{Definition: g.definition(0), Input: json.RawMessage(`{"n":3,"list":[1,2,3]}`)}
	for n := w.rng.IntN(3); n > 0; n-- {
		req.Notify = append(req.Notify, drover.Notify{Subject: fmt.Sprintf("told.%d", n)})
	}
	id := drover.RunID(name)
	w.starts[id] = &req
	w.append(id, drover.VerbStart, req)
	if w.chance(0.3) {
		w.within(time.Second, func() { w.append(id, drover.VerbStart, req) })
	}
	for _, wait := range g.waits {
		w.within(20*time.Second, func() { w.feed(id, wait, "early") })
		w.within(5*time.Minute, func() { w.feed(id, wait, "late") })
	}
	if w.chance(0.2) {
		w.within(30*time.Second, func() { w.append(id, drover.VerbStop, drover.StopRequest{Reason: "enough"}) })
	}
	for n := w.rng.IntN(3); n > 0; n-- {
		w.within(time.Minute, func() { w.append(id, drover.VerbTick, nil) })
	}
}

func (w *World) within(d time.Duration, do func()) {
	w.at(w.now.Add(time.Duration(w.rng.Int64N(int64(d)))), do)
}

func (w *World) feed(id drover.RunID, wait, key string) {
	req := drover.DeliverRequest{Name: wait, ID: key + wait, Payload: json.RawMessage(`{"ok":true}`)}
	w.append(id, drover.VerbDeliver, req)
	if w.chance(w.faults.Repeat) {
		w.soon(func() { w.append(id, drover.VerbDeliver, req) })
	}
}

// vandal publishes what makes no sense.
func (w *World) vandal() {
	garbage := [][]byte{nil, {0}, []byte("{"), []byte(`[]`), []byte(`{"call":"x"}`), []byte(`"text"`), []byte(`{"definition":{}}`), make([]byte, 5000)}
	verbs := []drover.Verb{"start", "stop", "deliver", "result", "child", "heard", "tick", "hold", "consume", "release", "replay", "explode", ""}
	ids := []drover.RunID{"run1", "run2", "nobody", "", "a b", "ü"}
	for range 12 {
		w.within(40*time.Second, func() {
			id, verb := ids[w.rng.IntN(len(ids))], verbs[w.rng.IntN(len(verbs))]
			if verb == drover.VerbStop {
				id = "nobody"
			}
			w.append(id, verb, garbage[w.rng.IntN(len(garbage))])
		})
	}
	w.within(20*time.Second, func() {
		forged := drover.ResultMessage{Call: drover.CallID{Run: "run1", Node: "n0", Item: drover.NoItem, Attempt: 1}, Token: "guess"}
		w.append("run1", drover.VerbResult, forged)
		forged.Call.Node, forged.Call.Item = "_outcome", w.rng.IntN(3)-1
		w.append("run1", drover.VerbResult, forged)
		for n := range 3 {
			w.append("run1", drover.VerbHeard, drover.HeardMessage{DeliveryID: drover.DeliveryIDOf("run1", n), Token: "guess", Attempt: 1, Receipt: "ok"})
		}
		w.append("run1", drover.VerbConsume, drover.WaiterRequest{Waiter: "nobody"})
		w.append("run1", drover.VerbReplay, drover.ReplayMessage{DeliveryID: "run2:terminal:0"})
	})
}

// generator makes random definitions.
type generator struct {
	w     *World
	waits []string // that someone has to feed
	lists []string // by node, a reference to an array that it gives, or ""
}

// definition makes a definition whose nodes each read some earlier ones.
func (g *generator) definition(depth int) json.RawMessage {
	count := 1 + g.w.rng.IntN(6)
	nodes := map[string]any{}
	g.lists = make([]string, count)
	for i := range count {
		nodes[fmt.Sprintf("n%d", i)] = g.node(i, depth)
	}
	def := map[string]any{"nodes": nodes, "output": map[string]any{"from": fmt.Sprintf("node:n%d", count-1)}}
	if g.w.chance(0.2) {
		def["max_parallel"] = 1 + g.w.rng.IntN(3)
	}
	if g.w.chance(0.15) {
		def["timeout"] = fmt.Sprintf("%ds", 1+g.w.rng.IntN(600))
	}
	data, err := json.Marshal(def)
	if err != nil {
		g.w.violated("the definition cannot be encoded: %v", err)
	}
	if _, err := drover.ParseDefinition(data); err != nil {
		g.w.violated("the definition is not valid: %v\n%s", err, data)
	}
	return data
}

func (g *generator) node(i, depth int) map[string]any {
	rng := g.w.rng
	node := map[string]any{}
	if i > 0 {
		var needs []string
		for n := range i {
			if g.w.chance(0.4) || n == i-1 {
				needs = append(needs, fmt.Sprintf("n%d", n))
			}
		}
		node["depends_on"] = needs
	}
	kind := rng.IntN(12)
	switch {
	case kind < 6:
		g.call(node, i)
	case kind < 7:
		node["set"] = map[string]any{"with": map[string]any{"n": "${{ input.n + 1 }}", "list": []int{4, 5}}}
		g.lists[i] = fmt.Sprintf("node:n%d.list", i)
	case kind < 8:
		node["sleep"] = []string{"10ms", "3s", "2m", "36h"}[rng.IntN(4)]
	case kind < 10 && depth == 0:
		name := fmt.Sprintf("w%d", i)
		g.waits = append(g.waits, name)
		node["wait"] = map[string]any{"name": name}
		if g.w.chance(0.5) {
			node["timeout"] = "30s"
		}
		node["on_error"] = "continue"
	case kind < 11 && depth < 2:
		child := &generator{w: g.w}
		node["run"] = map[string]any{"definition": child.definition(depth + 1), "detach": g.w.chance(0.2)}
		node["input"] = map[string]any{"from": "run_input"}
	default:
		g.call(node, i)
	}
	if g.w.chance(0.1) {
		node["when"] = "input.n == 4"
	}
	if g.w.chance(0.2) {
		node["require"] = []string{"succeeded", "terminal"}[rng.IntN(2)]
	}
	if g.w.chance(0.3) {
		node["on_error"] = "continue"
	}
	return node
}

func (g *generator) call(node map[string]any, i int) {
	rng := g.w.rng
	node["call"] = "work" + strings.Repeat("x", rng.IntN(3))
	node["input"] = map[string]any{"from": "run_input"}
	node["timeout"] = []string{"1s", "20s", "20m"}[rng.IntN(3)]
	if g.w.chance(0.5) {
		node["retry"] = map[string]any{"max_attempts": 1 + rng.IntN(6), "initial": "200ms", "max": "20s"}
	}
	if g.w.chance(0.3) {
		node["compensate"] = map[string]any{"call": "undo"}
	}
	g.lists[i] = fmt.Sprintf("node:n%d.list", i)
	if g.w.chance(0.3) {
		over := "run_input.list"
		if i > 0 && g.lists[i-1] != "" && g.w.chance(0.5) {
			over = g.lists[i-1]
		}
		g.lists[i] = fmt.Sprintf("node:n%d", i)
		node["fanout"] = map[string]any{"over": over}
		node["input"] = map[string]any{"from": "fanout_item"}
		if g.w.chance(0.5) {
			node["fanout"] = map[string]any{"over": over, "max_parallel": 1 + rng.IntN(2)}
		}
	}
}
