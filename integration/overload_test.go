package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/internal/natstest"
)

// peak is the most memory that a process has had, in MiB; 0 where the system
// does not say.
func (p *process) peak() int {
	p.t.Helper()
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(data)
	if m == nil {
		return 0
	}
	kib, err := strconv.Atoi(string(m[1]))
	if err != nil {
		p.t.Fatal(err)
	}
	return kib >> 10
}

// offered is runs that are started whether or not others have ended.
type offered struct {
	*fleet
	hash drover.Hash

	next     atomic.Int64
	accepted *tally // by run
	ended    *tally
	wrong    chan string

	mu      sync.Mutex
	acks    []time.Duration
	refused int
}

func newOffered(f *fleet, yaml string) *offered {
	f.t.Helper()
	o := &offered{fleet: f, accepted: newTally(), ended: newTally(), wrong: make(chan string, 100)}
	reply, err := f.PutDefinition(f.t.Context(), drover.DefinitionRequest{Definition: text(yaml)})
	if err != nil {
		f.t.Fatal(err)
	}
	o.hash = reply.Hash
	sub, err := f.nc.Subscribe(names.DoneAll(), func(m *nats.Msg) {
		var out drover.Outcome
		if err := json.Unmarshal(m.Data, &out); err != nil || out.Status != drover.StatusCompleted || compact(out.Result) != "4" {
			select {
			case o.wrong <- string(m.Data):
			default:
			}
		}
		o.ended.add(string(out.RunID), "")
	})
	if err != nil {
		f.t.Fatal(err)
	}
	if err := errors.Join(sub.SetPendingLimits(-1, -1), f.nc.Flush()); err != nil {
		f.t.Fatal(err)
	}
	return o
}

// start begins one run, and returns when its start is durable or refused.
func (o *offered) start(ctx context.Context) {
	run := drover.RunID(fmt.Sprintf("offered-%d", o.next.Add(1)))
	begun := time.Now()
	err := o.tryPublish(ctx, run, drover.VerbStart, drover.StartRequest{Hash: o.hash, Input: number(1)})
	o.mu.Lock()
	defer o.mu.Unlock()
	o.acks = append(o.acks, time.Since(begun))
	if err != nil {
		o.refused++
		return
	}
	o.accepted.add(string(run), "")
}

// closed keeps so many runs on their way for some time, and gives how many ended
// in a second.
func (o *offered) closed(inFlight int, length time.Duration) float64 {
	o.t.Helper()
	begun, before := time.Now(), o.ended.len()
	for time.Since(begun) < length {
		for o.accepted.len()-o.ended.len() < inFlight {
			o.start(context.Background())
		}
		await(o.t, o.ended.more, "the end of a run")
	}
	return float64(o.ended.len()-before) / time.Since(begun).Seconds()
}

// open starts so many runs a second for some time, and gives what ended in a
// second meanwhile.
func (o *offered) open(perSecond float64, length time.Duration) float64 {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	begun, before := time.Now(), o.ended.len()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var starting sync.WaitGroup
	for sent := 0; time.Since(begun) < length; <-tick.C {
		for ; sent < int(perSecond*time.Since(begun).Seconds()); sent++ {
			starting.Go(func() { o.start(ctx) })
		}
	}
	done := float64(o.ended.len()-before) / time.Since(begun).Seconds()
	starting.Wait()
	return done
}

// drain waits until every run that was accepted has ended.
func (o *offered) drain() {
	o.t.Helper()
	for o.ended.len() < o.accepted.len() {
		await(o.t, o.ended.more, fmt.Sprintf("the end of run %d of %d", o.ended.len()+1, o.accepted.len()))
	}
}

// slowest takes the acks since the last call, and gives the 99th percentile.
func (o *offered) slowest() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	slices.Sort(o.acks)
	p99 := o.acks[len(o.acks)*99/100]
	o.acks = nil
	return p99
}

// faults 14: more is started than the fleet can do, for a while. What was
// accepted waits in the log and not in the memory of a worker, is done all the
// same, and afterwards everything is as before.
func TestFaults14Overload(t *testing.T) {
	const most = 400 // MiB
	f := connect(t, natsServer(t))
	p := launch(t, "serve", "--nats", f.url)
	p.line("owns 64 of 64")
	f.serve(function.New("add", func(_ context.Context, n int) (int, error) { return n + 1, nil }))
	o := newOffered(f, sequence)
	o.closed(64, time.Second) // warm
	capacity := o.closed(64, time.Duration(fewer(3, 1))*time.Second)
	o.drain()
	calm, normal := o.slowest(), p.peak()
	goodput := o.open(3*capacity, time.Duration(fewer(4, 1))*time.Second)
	behind := o.accepted.len() - o.ended.len()
	begun := time.Now()
	o.drain()
	t.Logf("capacity %.0f runs/s; at three times that %.0f runs/s ended, and %d were behind, which took %v", capacity, goodput, behind, time.Since(begun))
	t.Logf("acks of starts p99 %v, then %v, and %d refused; the worker had at most %d MiB, then %d MiB", calm, o.slowest(), o.refused, normal, p.peak())
	after := o.closed(64, time.Second)
	o.drain()
	t.Logf("afterwards %.0f runs/s", after)
	if behind < int(capacity) {
		t.Logf("only %d runs were behind: that was hardly an overload", behind)
	}
	if n := p.peak(); n > most {
		t.Errorf("the worker had %d MiB", n)
	}
	if len(o.wrong) > 0 {
		t.Errorf("an outcome is wrong: %s", <-o.wrong)
	}
	for _, run := range o.accepted.keys() {
		if n := len(o.ended.of(run)); n != 1 {
			t.Errorf("run %s has %d outcomes", run, n)
		}
	}
}

// A worker that comes to a log of large commands reads no more of it than it can
// work on.
func TestFaults14ABacklogOfLargeCommands(t *testing.T) {
	const most, size = 256, 256 << 10 // MiB, bytes
	runs := fewer(600, 300)
	f := connect(t, natsServer(t))
	p := launch(t, "serve", "--nats", f.url)
	p.line("owns 64 of 64")
	p.kill()
	large := `"` + string(slices.Repeat([]byte("x"), size-2)) + `"`
	for i := range runs {
		f.publish(drover.RunID(fmt.Sprintf("large-%d", i)), drover.VerbStart, drover.StartRequest{
			Definition: text("nodes: {a: {set: {with: \"${{ len(input) }}\"}}}\noutput: {from: node:a}\n"), Input: json.RawMessage(large),
		})
	}
	begun := time.Now()
	p = launch(t, "serve", "--nats", f.url)
	p.line("owns 64 of 64")
	eventually(t, "the end of all runs", func() bool { return f.holds(names.Outcomes(), ">") == runs })
	t.Logf("%d runs with inputs of %d bytes took %v, and the worker %d MiB", runs, size, time.Since(begun), p.peak())
	if n := p.peak(); n > most {
		t.Errorf("the worker had %d MiB", n)
	}
}

// faults 10: the disk of the server is full, and later there is room. A start
// that cannot be stored is refused to its sender, and what was acknowledged is
// done in the end: also what was to be woken while the disk was full.
func TestFaults10TheDiskIsFull(t *testing.T) {
	s := natstest.New(t, natstest.Listen(), natstest.With(func(o *server.Options) { o.JetStreamMaxStore = 80 << 20 }))
	f := connect(t, s.URL())
	serve := func() *process {
		p := launch(t, "serve", "--nats", s.URL(), "--partitions", "8")
		p.line("owns 8 of 8")
		return p
	}
	p := serve()
	f.serve(function.New("add", func(_ context.Context, n int) (int, error) { return n + 1, nil }))
	acked := map[drover.RunID]string{}
	begin := func(run drover.RunID, yaml, result string) error {
		ctx, cancel := context.WithTimeout(t.Context(), answer)
		defer cancel()
		err := f.tryPublish(ctx, run, drover.VerbStart, drover.StartRequest{Definition: text(yaml), Input: number(1)})
		if err == nil {
			acked[run] = result
		}
		return err
	}
	const pause = "nodes: {z: {sleep: %s}, a: {call: add, input: {from: run_input}, depends_on: [z]}}\noutput: {from: node:a}\n"
	begun := time.Now()
	for i := range 20 { // some are woken by the server, and some by the worker
		if err := begin(drover.RunID(fmt.Sprintf("durable-%d", i)), fmt.Sprintf(pause, "6s"), "2"); err != nil {
			t.Fatal(err)
		}
	}
	p.signal(os.Interrupt) // it makes the wake-ups durable
	p.wait()
	serve()
	for i := range 20 {
		if err := begin(drover.RunID(fmt.Sprintf("memory-%d", i)), fmt.Sprintf(pause, "3s"), "2"); err != nil {
			t.Fatal(err)
		}
	}

	fill(t, f)
	full := 0
	for i := range 200 {
		if err := begin(drover.RunID(fmt.Sprintf("late-%d", i)), sequence, "4"); err != nil {
			full++
		}
	}
	if full == 0 {
		t.Error("no start was refused: the disk was not full")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*answer)
	defer cancel()
	_, err := f.Start(ctx, drover.StartRequest{RunID: "asked", Definition: text(sequence), Input: number(1)})
	if err == nil || !strings.Contains(err.Error(), "insufficient resources") {
		t.Errorf("the API says of a start while the disk is full: %v", err)
	}
	eventually(t, "the time of all timers", func() bool { return time.Since(begun) > 7*time.Second })

	if err := f.js.DeleteStream(t.Context(), "FILLER"); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := begin(drover.RunID(fmt.Sprintf("after-%d", i)), sequence, "4"); err != nil {
			t.Errorf("a start when there is room again: %v", err)
		}
	}
	for run, result := range acked {
		f.completes(run, result)
	}
}

// fill has somebody else use up all the room of a server.
func fill(t *testing.T, f *fleet) {
	t.Helper()
	_, err := f.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "FILLER", Subjects: []string{"filler"}, Discard: jetstream.DiscardNew})
	if err != nil {
		t.Fatal(err)
	}
	for size := 1 << 20; size > 64; size /= 2 {
		for {
			if _, err := f.js.Publish(t.Context(), "filler", make([]byte, size)); err != nil {
				break
			}
		}
	}
}
