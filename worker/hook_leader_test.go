package worker_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
)

var handOvers = flag.Int("handovers", 1000, "how many leaders follow each other")

// follow gives the outcome of every run from now on, each once.
func (r *racing) follow() <-chan drover.Outcome {
	r.t.Helper()
	all := make(chan drover.Outcome, 100_000)
	over := map[drover.RunID]bool{} // only the subscription's own goroutine uses it
	sub, err := r.nc.Subscribe("drover.done.>", func(m *nats.Msg) {
		var o drover.Outcome
		if err := json.Unmarshal(m.Data, &o); err != nil {
			r.t.Error(err)
		}
		if !over[o.RunID] {
			over[o.RunID] = true
			all <- o
		}
	})
	if err == nil {
		err = sub.SetPendingLimits(-1, -1)
	}
	if err == nil {
		err = r.nc.Flush()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// send has eight senders deliver the numbers below n, and start a run where
// nobody holds the token.
func (r *racing) send(token string, n int, start *drover.StartRequest) (wait func()) {
	var sending sync.WaitGroup
	next := make(chan int, n)
	for k := range n {
		next <- k
	}
	close(next)
	for range 8 {
		sending.Go(func() {
			for k := range next {
				_, err := deliver(r.t.Context(), r.nc, drover.HookRequest{
					Token: token, Payload: json.RawMessage(fmt.Sprint(k)), ID: fmt.Sprint("id", k), Start: start,
				})
				if err != nil {
					r.t.Errorf("delivery %d: %v", k, err)
					return
				}
			}
		})
	}
	return sending.Wait
}

// readBy collects what runs have read until that is n deliveries, none of them
// twice, and none of the runs in vain. reads gives what an outcome says.
func (r *racing) readBy(all <-chan drover.Outcome, n int, reads func(drover.Outcome) ([]int, error)) (runs int) {
	r.t.Helper()
	read := map[int]drover.RunID{}
	for len(read) < n && !r.t.Failed() {
		var o drover.Outcome
		select {
		case o = <-all:
		case <-time.After(patience):
			r.t.Fatalf("%d deliveries were read, and then none any more", len(read))
		}
		runs++
		got, err := reads(o)
		if err != nil || o.Status != drover.StatusCompleted || len(got) == 0 {
			r.t.Fatalf("run %s is %s with the result %s (%v)", o.RunID, o.Status, o.Result, o.Error)
		}
		for _, k := range got {
			if other, twice := read[k]; twice {
				r.t.Fatalf("%d was read by run %s and by run %s", k, other, o.RunID)
			}
			read[k] = o.RunID
		}
	}
	return runs
}

// Leaders follow each other, each reads one delivery, and eight senders deliver
// to whoever leads: each delivery is read by one of them, and none leads in vain.
func TestHooks19HandOvers(t *testing.T) {
	n := *handOvers
	if testing.Short() {
		n = min(n, 100)
	}
	r := newRacing(t)
	put(t, r.nc, "leader", `
output: {from: node:inbox}
nodes:
  inbox: {wait: {hook: leader, on_unread: restart}}`)
	all := r.follow()
	begun := time.Now()
	var ends []time.Duration
	wait := r.send("leader", n, &drover.StartRequest{Workflow: "leader"})
	runs := r.readBy(all, n, func(o drover.Outcome) ([]int, error) {
		var k int
		err := json.Unmarshal(o.Result, &k)
		ends = append(ends, time.Since(begun))
		return []int{k}, err
	})
	wait()
	t.Logf("%d deliveries, %d leaders, %v", n, runs, time.Since(begun).Round(time.Millisecond))
	tenth := len(ends) / 10
	if tenth == 0 {
		return
	}
	// No round is to be slower than its neighbours, nor the late ones than the early.
	t.Logf("the last tenth of the rounds took %.2f of what the second took", float64(ends[len(ends)-1]-ends[len(ends)-1-tenth])/float64(ends[2*tenth-1]-ends[tenth-1]))
}

// A burst comes while a call runs: the run that has made it reads one delivery,
// and its successors the others.
func TestHooks16ABurstWhileACallRuns(t *testing.T) {
	const burst = 60
	r := newRacing(t)
	free := make(chan struct{})
	serve(t, r.server, function.New("busy", func(context.Context, int) (int, error) { <-free; return 0, nil }))
	put(t, r.nc, "busy", `
output: {with: {read: "${{ nodes.inbox.output }}", more: "${{ nodes.more.output }}"}}
nodes:
  inbox: {wait: {hook: busy, on_unread: restart}}
  work: {call: busy, input: {from: node:inbox}}
  more: {wait: {from: inbox, count: 3, timeout: 20ms}, depends_on: [work], on_error: continue}`)
	all := r.follow()
	wait := r.send("busy", burst, &drover.StartRequest{Workflow: "busy"})
	wait() // all of them are accepted while the first call runs
	close(free)
	r.readBy(all, burst, func(o drover.Outcome) ([]int, error) {
		var got struct {
			Read int
			More []int
		}
		err := json.Unmarshal(o.Result, &got)
		return append(got.More, got.Read), err
	})
}

// Runs wait for two hooks and a timer, again and again: what comes to one of the
// hooks is read or counted, whichever the others do.
func TestHooksTwoHooksAndATimerInALoop(t *testing.T) {
	const n = 60
	r := newRacing(t)
	put(t, r.nc, "loop", strings.TrimSpace(`
output: {with: {a: "${{ nodes.a.output }}", b: "${{ nodes.b.output }}", over: "${{ nodes.over.output }}"}}
nodes:
  a: {wait: {hook: side a, on_unread: restart}}
  b: {wait: {hook: side b, timeout: 2ms}, on_error: continue}
  nap: {sleep: 1ms, depends_on: [a]}
  over: {set: {with: 1}, depends_on: [nap, b], require: terminal}`))
	all := r.follow()
	wait := r.send("side a", n, &drover.StartRequest{Workflow: "loop"})
	var mu sync.Mutex
	accepted, counted := map[int]bool{}, map[int]bool{}
	var sending sync.WaitGroup
	sending.Go(func() {
		for k := range 300 {
			_, there, err := r.give("side b", fmt.Sprint("b", k), k)
			if err != nil {
				t.Errorf("delivery %d to the other hook: %v", k, err)
			}
			mu.Lock()
			accepted[k] = there
			mu.Unlock()
		}
	})
	r.readBy(all, n, func(o drover.Outcome) ([]int, error) {
		var got struct {
			A int
			B *int
		}
		err := json.Unmarshal(o.Result, &got)
		if got.B != nil {
			if counted[*got.B] {
				t.Errorf("%d was read twice", *got.B)
			}
			counted[*got.B] = true
		}
		return []int{got.A}, err
	})
	wait()
	sending.Wait()
	for k := range counted {
		if !accepted[k] {
			t.Errorf("delivery %d was refused, and read", k)
		}
	}
	for k, there := range accepted {
		if there && !counted[k] {
			t.Errorf("delivery %d was accepted, and not read", k)
		}
	}
}
