package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/droverhq/drover"
)

// Deliveries says what happened to outcomes in a world.
type Deliveries struct {
	Attempts int // that reached somebody
	Calls    int // of functions that were told
	Unmade   int // that found nobody
	AtOnce   int // that were made because a target was there again
	Consumed int // runs whose outcome somebody took who waited for it
	Refused  int // who came too late for that
	Deaths   int
	Replays  int
	Listed   int // that are on the list in the end, and are not dead
}

func (t *told) report() Deliveries {
	d := Deliveries{Attempts: t.attempts, Calls: t.calls, Unmade: t.unmade, AtOnce: t.atOnce, Refused: t.refused, Deaths: t.deaths, Replays: t.replays}
	for _, is := range t.latest {
		if is.taker != "" {
			d.Consumed++
		}
	}
	for id := range t.listed {
		run, i, err := drover.ParseDeliveryID(string(id))
		if err == nil && i < len(t.latest[run].subs) && t.latest[run].subs[i].Status != drover.DeliveryDead {
			d.Listed++
		}
	}
	return d
}

// RunDeliveries lives the world of a seed in which many are told of outcomes, are
// away, broken or wait for them. tell, if not nil, is told all that happens.
func RunDeliveries(seed uint64, faults Faults, tell func(format string, args ...any)) (Report, error) {
	w := newWorld(seed, faults)
	w.tell = tell
	begin := w.now
	w.take()
	w.populate()
	w.at(w.told.calmAt, w.calm)
	for n := range 30 {
		w.at(w.told.calmAt.Add(time.Duration(n)*20*time.Second), w.look)
	}
	w.live(begin)
	return w.report(begin), w.failure
}

// everybody is who may be told in a world. Those with broken in their name are.
var everybody = []drover.Notify{
	{Subject: "told.a"},
	{Subject: "told.b"},
	{Subject: "told.broken"},
	{StreamSubject: "kept.a"},
	{StreamSubject: "kept.b"},
	{URL: "https://told.example/x"},
	{URL: "https://told.example/broken"},
	{Function: "hear"},
	{Function: "work"}, // which the runs call too
	{Function: "broken"},
}

// populate gives a world its targets, runs, waiters and operators.
func (w *World) populate() {
	w.told.plain = w.chance(0.3)
	w.rotate()
	if w.told.cleaning = w.chance(0.4); w.told.cleaning {
		w.age()
	}
	targets := slices.Clone(everybody)
	w.rng.Shuffle(len(targets), func(i, k int) { targets[i], targets[k] = targets[k], targets[i] })
	targets = targets[:2+w.rng.IntN(3)]
	for i := range targets {
		to := targetOf(&targets[i])
		for from := w.now; w.chance(0.5); {
			from = from.Add(time.Duration(w.rng.Int64N(int64(time.Minute))))
			until := from.Add(time.Duration(w.rng.Int64N(int64([]time.Duration{3 * time.Second, 30 * time.Second, 4 * time.Minute}[w.rng.IntN(3)]))))
			w.told.windows[to] = append(w.told.windows[to], window{from, until})
			from = until
		}
	}
	for n := 1 + w.rng.IntN(4); n > 0; n-- {
		w.starter(drover.RunID(fmt.Sprintf("run%d", n)), targets)
	}
	for range w.rng.IntN(3) {
		w.forge()
	}
	for range w.rng.IntN(5) {
		w.told.busy++
		w.within(6*time.Minute, w.operate)
	}
	if w.chance(0.4) {
		w.vandal()
	}
}

// works are the definitions of runs whose outcomes matter more than they.
var works = [...]string{
	`{"nodes":{"n":{"set":{"with":1}}},"output":{"from":"node:n"}}`,
	`{"nodes":{"n":{"call":"work","timeout":"20s","input":{"from":"run_input"}}},"output":{"from":"node:n"}}`,
	`{"nodes":{"n":{"call":"work","timeout":"20s","input":{"from":"run_input"}},"m":{"call":"work","timeout":"5s"},"o":{"sleep":"3s"}},"output":{"from":"node:o"}}`,
	`{"nodes":{"n":{"sleep":"40s"}},"output":{"from":"node:n"}}`,
	`{"nodes":{"n":{"call":"work","timeout":"20s","compensate":{"call":"undo"}},"m":{"wait":{"name":"never"},"timeout":"10s","depends_on":["n"]}},"output":{"from":"node:m"}}`,
}

// starter starts a run that many are told of.
func (w *World) starter(id drover.RunID, targets []drover.Notify) {
	req := drover.StartRequest{Definition: json.RawMessage(works[w.rng.IntN(len(works))]), Input: json.RawMessage(`{"n":3,"list":[1,2,3]}`)}
	if w.chance(0.2) {
		g := generator{w: w}
		req.Definition = g.definition(1)
	}
	for range 1 + w.rng.IntN(4) {
		req.Notify = append(req.Notify, w.subscriber(targets[w.rng.IntN(len(targets))]))
	}
	if w.chance(0.5) {
		w.replyTo(id, &req)
	}
	w.starts[id] = &req
	waiting := w.rng.IntN(4)
	begin := time.Duration(w.rng.Int64N(int64(30 * time.Second)))
	for n := range waiting {
		if n == 0 && w.chance(0.7) {
			w.waits(id, n, begin, &req)
		} else {
			w.waits(id, n, begin+time.Duration(w.rng.Int64N(int64(time.Minute))), nil)
		}
	}
	w.at(w.now.Add(begin), func() {
		w.append(id, drover.VerbStart, req)
		if w.chance(w.faults.Repeat) {
			w.soon(func() { w.append(id, drover.VerbStart, req) })
		}
	})
	if w.chance(0.2) {
		w.within(time.Minute, func() { w.append(id, drover.VerbStop, drover.StopRequest{Reason: "enough"}) })
	}
}

// subscriber makes one that is told, with bounds or without.
func (w *World) subscriber(n drover.Notify) drover.Notify {
	n.Inline = w.chance(0.5)
	if n.Subject != "" && w.chance(0.5) {
		n.Batch = &drover.Batch{Max: 2 + int(w.Seed%3)*4}
		if w.Seed%4 > 0 {
			n.Batch.Wait = drover.Duration(5 * time.Second)
		}
	}
	if n.Function == "" && w.chance(0.3) {
		n.Timeout = drover.Duration(10 * time.Second)
	}
	if w.chance(0.4) {
		n.MaxAge = drover.Duration([]time.Duration{20 * time.Second, 90 * time.Second, 10 * time.Minute}[w.rng.IntN(3)])
	}
	if broken(targetOf(&n)) && n.MaxAge == 0 || w.chance(0.2) {
		n.MaxAttempts = 1 + w.rng.IntN(3)
	}
	return n
}

// operate has an operator deliver again what is dead, or whatever.
func (w *World) operate() {
	w.told.busy--
	var dead []drover.DeliveryID
	for _, run := range slices.Sorted(maps.Keys(w.told.latest)) {
		for i, sub := range w.told.latest[run].subs {
			if sub.Status == drover.DeliveryDead {
				dead = append(dead, drover.DeliveryIDOf(run, i))
			}
		}
	}
	run, body := drover.RunID("run1"), drover.ReplayMessage{}
	if len(dead) > 0 && w.chance(0.8) {
		body.DeliveryID = dead[w.rng.IntN(len(dead))]
		run, _, _ = drover.ParseDeliveryID(string(body.DeliveryID))
	}
	if w.chance(0.3) {
		body.DeliveryID = ""
	}
	w.replayed(run, body)
}

// replayed has an operator deliver again what is dead of a run.
func (w *World) replayed(run drover.RunID, body drover.ReplayMessage) {
	p := &waiter{w: w, run: run, name: "operator"}
	p.ask(drover.VerbReplay, body, func(answer any, _ *drover.Error) {
		if reply, ok := answer.(drover.ReplayedReply); ok {
			w.told.replays += reply.Replayed
			w.saw("Delivery12 an operator replayed")
		}
	})
}
