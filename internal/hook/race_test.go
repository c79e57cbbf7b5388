package hook

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/droverhq/drover"
)

var seeds = flag.Int("seeds", 40, "how many seeds each random test runs with")

// explore runs a scenario in every order with at most so many switches away from
// the process whose turn it is, and so many kills. A process has its turn
// until it ends or waits for another; then the next one has.
func explore(t *testing.T, switches, most int, scenario func(w *world)) {
	var path []int // of the choices so far, which one was made
	orders := 0
	for {
		at, left, kills := 0, switches, most
		var turn *proc
		var widths []int
		w := newWorld(t, nil)
		w.eager = true
		w.choose = func(options []option) int {
			allowed := allow(options, turn, left, kills)
			if at == len(path) {
				path = append(path, 0)
			}
			widths = append(widths, len(allowed))
			pick := path[at]
			at++
			o := options[allowed[pick]]
			switch {
			case o.kill:
				kills--
				return allowed[pick]
			case pick > 0:
				left--
			}
			turn = o.proc
			turn.waits = false
			return allowed[pick]
		}
		scenario(w)
		orders++
		for path = path[:at]; len(path) > 0 && path[len(path)-1]+1 >= widths[len(path)-1]; {
			path = path[:len(path)-1]
		}
		if len(path) == 0 {
			break
		}
		path[len(path)-1]++
	}
	if t.Logf("%d orders", orders); orders < 3 {
		t.Errorf("only %d orders were tried", orders)
	}
}

// allow gives the options that the bounds leave, first the one whose turn it is.
func allow(options []option, turn *proc, switches, kills int) (allowed []int) {
	first := 0
	for i, o := range options {
		if o.proc == turn && !o.kill {
			first = i
			if turn.waits {
				first = (i + 1) % slices.IndexFunc(append(options, option{kill: true}), func(o option) bool { return o.kill })
			}
		}
	}
	allowed = append(allowed, first)
	for i, o := range options {
		if o.kill && kills > 0 && o.proc == turn || !o.kill && i != first && switches > 0 {
			allowed = append(allowed, i)
		}
	}
	return allowed
}

// random runs a scenario with seeds, with kills, failures and commands that are
// folded late.
func random(t *testing.T, scenario func(w *world)) {
	t.Helper()
	n := *seeds
	if testing.Short() {
		n = min(n, 8)
	}
	for seed := range n {
		ok := t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(seed), 1))
			kills := rng.IntN(6)
			w := newWorld(t, func(options []option) int {
				i := rng.IntN(len(options))
				for options[i].kill {
					if kills > 0 && rng.IntN(10) == 0 {
						kills--
						break
					}
					i = rng.IntN(len(options))
				}
				return i
			})
			w.alarms = true
			failures := rng.IntN(8)
			w.fail = func() (before, after bool) {
				if failures == 0 || rng.IntN(20) > 0 {
					return false, false
				}
				failures--
				before = rng.IntN(2) == 0
				return before, !before
			}
			scenario(w)
		})
		if !ok {
			return // one is enough to look at
		}
	}
}

// both explores a small scenario, and runs it with seeds.
func both(t *testing.T, switches int, scenario func(w *world)) {
	if testing.Short() {
		switches = min(switches, 1)
	}
	if t.Run("every order", func(t *testing.T) { explore(t, switches, 0, scenario) }) &&
		t.Run("every kill", func(t *testing.T) { explore(t, switches-1, 1, scenario) }) {
		random(t, scenario)
	}
}

func TestHooks18RacersStartOneRun(t *testing.T) {
	both(t, 2, func(w *world) {
		a, b := w.deliver("1", "a", reader), w.deliver("2", "b", leader)
		w.settle()
		w.check(a, b)
	})
}

func TestHooks18WithoutIDs(t *testing.T) {
	both(t, 2, func(w *world) {
		a, b := w.deliver("1", "", leader), w.deliver("2", "", leader)
		w.settle()
		w.check(a, b)
	})
}

func TestHooks08TheSameIDIsAcceptedOnce(t *testing.T) {
	both(t, 2, func(w *world) {
		a, b := w.deliver("1", "a", reader), w.deliver("1", "a", reader)
		w.settle()
		if a.reply == nil || b.reply == nil || a.reply.RunID != b.reply.RunID {
			w.t.Fatalf("replies %+v and %+v, errors %v and %v", a.reply, b.reply, a.err, b.err)
		}
		c := w.deliver("1", "a", leader) // the token has changed hands meanwhile
		w.settle()
		if c.reply == nil || !c.reply.Repeat {
			w.t.Fatalf("a repeat gives %+v, error %v", c.reply, c.err)
		}
		d := w.deliver("2", "a", leader)
		w.settle()
		if !errors.Is(d.err, drover.CodeConflict) {
			w.t.Fatalf("another payload with the same id gives %+v, error %v", d.reply, d.err)
		}
		w.check(a, b, c, d)
	})
}

func TestHooks08DifferentPayloadsWithOneIDNeverMix(t *testing.T) {
	both(t, 2, func(w *world) {
		a, b := w.deliver("1", "a", leader), w.deliver("2", "a", leader)
		w.settle()
		if (a.reply == nil) == (b.reply == nil) {
			w.t.Fatalf("replies %+v and %+v, errors %v and %v", a.reply, b.reply, a.err, b.err)
		}
		w.check(a, b)
	})
}

func TestHooks11DeliveryRacesClaimAndEnd(t *testing.T) {
	both(t, 2, func(w *world) {
		w.start("one", reader)
		a, b := w.deliver("1", "a", ""), w.deliver("2", "", "")
		w.settle()
		w.check(a, b)
	})
}

func TestHooks01ClaimantsRace(t *testing.T) {
	both(t, 2, func(w *world) {
		for _, id := range []drover.RunID{"one", "two", "three"} {
			w.start(id, reader)
		}
		w.settle()
		held, _ := Read(t.Context(), w.hooks, "t")
		if held == nil {
			w.t.Fatal("nobody has the token")
		}
		lost := 0
		for id, r := range w.runs {
			s := w.state(r)
			if id == held.Run {
				continue
			}
			if e := s.Nodes[0].Error; e == nil || e.Code != drover.CodeConflict || e.Run != held.Run || !strings.Contains(e.Message, string(held.Run)+" since ") {
				w.t.Fatalf("run %s: %v, where run %s has the token", id, e, held.Run)
			}
			lost++
		}
		if lost != 2 {
			w.t.Fatalf("%d lost", lost)
		}
		w.check()
	})
}

func TestHooks06TheTokenIsFreeOnceTheEndIsVisible(t *testing.T) {
	both(t, 2, func(w *world) {
		w.start("one", reader)
		w.settle()
		a := w.deliver("1", "a", "")
		for !w.ended("one") {
			if !w.step() {
				w.t.Fatal("the run does not end")
			}
		}
		w.start("two", reader) // while the first release is under way
		w.settle()
		b := w.deliver("2", "b", "")
		w.settle()
		if b.reply == nil || b.reply.RunID != "two" {
			w.t.Fatalf("reply %+v, error %v", b.reply, b.err)
		}
		w.check(a, b)
	})
}

func (w *world) ended(id drover.RunID) bool {
	r := w.runs[id]
	return r != nil && r.record != nil && w.state(r).Terminal()
}

func TestHooks07TakersChain(t *testing.T) {
	both(t, 2, func(w *world) {
		w.start("one", reader)
		w.start("two", taker)
		w.start("three", taker)
		a := w.deliver("1", "a", "")
		w.settle()
		w.check(a)
		waiting := 0
		for _, id := range w.order {
			s := w.state(w.runs[id])
			if !s.Terminal() {
				waiting++
			} else if e := s.Nodes[0].Error; e != nil && (e.Code != drover.CodeConflict || e.Run == "" || e.Run == id) {
				w.t.Fatalf("run %s: %v", id, e)
			}
		}
		if a.err != nil && waiting != 1 {
			w.t.Fatalf("%d runs wait for a delivery\n%s", waiting, strings.Join(w.trace, "\n"))
		}
	})
}

func TestHooks07TakerMeetsStart(t *testing.T) {
	both(t, 2, func(w *world) {
		a := w.deliver("1", "a", leader)
		w.start("two", taker)
		b := w.deliver("2", "b", "")
		w.settle()
		w.check(a, b)
	})
}

// A run that is over gives its successor what it has not read, in order and
// before what is sent to the token meanwhile.
func TestHooks16SuccessorsReadInOrder(t *testing.T) {
	both(t, 1, func(w *world) {
		w.alarms = false
		var all []*sent
		for i := range 4 {
			all = append(all, w.deliver(fmt.Sprint(i), fmt.Sprint("id", i), worker))
			w.rest()
		}
		w.tick()
		all = append(all, w.deliver("4", "id4", worker))
		w.settle()
		w.check(all...)
		var read []string
		for _, id := range w.order {
			if r := w.runs[id]; r.record != nil && w.state(r).Nodes[0].Output.JSON != nil {
				read = append(read, string(w.state(r).Nodes[0].Output.JSON))
			}
		}
		if !slices.Equal(read, []string{"0", "1", "2", "3", "4"}) {
			w.t.Fatalf("%v were read in this order:\n%s", read, strings.Join(w.trace, "\n"))
		}
	})
}

func TestHooks19LeadersComeAndGo(t *testing.T) {
	for _, texts := range [][]string{{leader}, {worker}, {worker, leader, pair}, {leader, pair, reader, holder, claimer, worker}} {
		random(t, func(w *world) {
			var all []*sent
			for i := range 10 {
				id := ""
				if i%3 > 0 {
					id = fmt.Sprint("id", i)
				}
				all = append(all, w.deliver(fmt.Sprint(i), id, texts[i%len(texts)]))
			}
			w.settle()
			w.check(all...)
		})
	}
}

// Everything at once: those who start, those who claim, those who take over, and
// those who only deliver.
func TestHooksRaceOfAll(t *testing.T) {
	random(t, func(w *world) {
		w.start("one", claimer)
		w.start("two", taker)
		var all []*sent
		for i := range 8 {
			text := []string{"", worker, "", leader, reader}[i%5]
			all = append(all, w.deliver(fmt.Sprint(i), fmt.Sprint("id", i), text))
			if i == 3 {
				w.start("three", taker)
				w.start("four", worker)
			}
		}
		w.settle()
		w.check(all...)
	})
}
