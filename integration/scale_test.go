package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/worker"
)

// fewer is a number of something that a test has many of, and with -short less.
func fewer(many, short int) int {
	if testing.Short() {
		return short
	}
	return many
}

// natsServer starts a server that is a process of its own, so that what the
// test's process uses is not the server's.
func natsServer(t testing.TB) (url string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, address := t.TempDir(), freeAddress(t)
	config := filepath.Join(dir, "nats.conf")
	text := fmt.Sprintf("listen: %q\nmax_payload: 8MB\njetstream {store_dir: %q}\n", address, filepath.Join(dir, "store"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-c", config) //nolint:noctx // the test ends it
	cmd.Env = append(os.Environ(), playsEnv+"=nats-server")
	start(t, cmd).line("Server is ready")
	return "nats://" + address
}

// hire has a worker work in the test's own process, until stop or the end of
// the test.
func hire(t testing.TB, url string, opts worker.Options) (stop func()) {
	t.Helper()
	nc := dial(t, url)
	w, err := worker.New(nc, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }() // stop waits for it
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := await(t, done, "the end of the worker"); err != nil {
			t.Errorf("worker: %v", err)
		}
		nc.Close()
	}
	t.Cleanup(stop)
	await(t, w.Ready(), "the worker")
	return stop
}

// flood starts so many runs, with inputs of their own, as fast as the server
// takes them. It returns when all starts are durable.
func (f *fleet) flood(prefix, yaml string, n int, input func(i int) json.RawMessage) []drover.RunID {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	reply, err := f.PutDefinition(ctx, drover.DefinitionRequest{Definition: text(yaml)})
	if err != nil {
		f.t.Fatal(err)
	}
	runs := make([]drover.RunID, n)
	acks := make([]jetstream.PubAckFuture, n)
	for i := range runs {
		runs[i] = drover.RunID(fmt.Sprintf("%s-%d", prefix, i))
		data, err := json.Marshal(drover.StartRequest{Hash: reply.Hash, Input: input(i)})
		if err != nil {
			f.t.Fatal(err)
		}
		acks[i], err = f.js.PublishAsync(names.In(runs[i], drover.VerbStart), data, jetstream.WithStallWait(patience))
		if err != nil {
			f.t.Fatal(err)
		}
	}
	for i, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			f.t.Fatalf("the start of run %s: %v", runs[i], err)
		case <-ctx.Done():
			f.t.Fatalf("the start of run %s was not answered", runs[i])
		}
	}
	return runs
}

// holds is how many messages a stream has on subjects that match.
func (f *fleet) holds(stream, subject string) int {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := f.js.Stream(ctx, stream)
	if err != nil {
		return 0
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(subject))
	if err != nil {
		f.t.Fatal(err)
	}
	n := 0
	for _, messages := range info.State.Subjects {
		n += int(messages)
	}
	return n
}

// eventually looks now and then until it is so.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for timeout := time.After(patience); !so(); {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("gave up waiting for %s", what)
		}
	}
}

// heap is the memory that this process holds on to.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools held is gone with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// used is the processor time of this process.
func used(t testing.TB) time.Duration {
	t.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// idle is the share of one core that this process uses while the test does
// nothing: the least of a few times, for others use the machine as well.
func idle(t testing.TB, enough float64) float64 {
	t.Helper()
	least := 1.0
	for range 10 {
		from, begun := used(t), time.Now()
		<-time.After(2 * time.Second)
		least = min(least, float64(used(t)-from)/float64(time.Since(begun)))
		if least < enough {
			break
		}
	}
	return least
}

// Runs that are parked cost their worker next to no memory, and next to no time.
// The worker is in this process, and the server is not.
func TestParkedRunsCostAWorkerNothing(t *testing.T) {
	const parked = "nodes: {a: {sleep: 1h}}\noutput: {from: node:a}\n"
	null := func(int) json.RawMessage { return nil }
	runs := fewer(10_000, 2_000)
	f := connect(t, natsServer(t))
	hire(t, f.url, worker.Options{CoverAfter: time.Second})
	f.flood("warm", parked, 500, null) // what is made once is there
	eventually(t, "durable timers", func() bool { return f.holds(names.Commands(), names.TimerAll()) == 500 })
	before := heap()

	ids := f.flood("parked", parked, runs, null)
	eventually(t, "durable timers", func() bool { return f.holds(names.Commands(), names.TimerAll()) == 500+runs })
	most := heap() - before
	var grown int64
	// A worker keeps a run for some seconds after the last command.
	eventually(t, "memory of less than 1 KiB a run", func() bool {
		grown = heap() - before
		return grown < int64(runs)<<10
	})
	t.Logf("%d parked runs: %d bytes a run, %d while they are begun", runs, grown/int64(runs), most/int64(runs))

	share := idle(t, 0.03)
	t.Logf("idle: %.2f %% of one core", 100*share)
	if share > 0.03 {
		t.Errorf("a worker that has nothing to do uses %.1f %% of one core", 100*share)
	}
	last := ids[len(ids)-1]
	f.publish(last, drover.VerbStop, drover.StopRequest{})
	if o := f.outcome(last); o.Status != drover.StatusCancelled {
		t.Errorf("a run that was parked and stopped is %s", o.Status)
	}
	if n := f.holds("KV_"+names.Runs(), ">"); n != 500+runs {
		t.Errorf("%d records of %d runs", n, 500+runs)
	}
}

// The widest fan-out there is ends in its order, and never has a record that is
// large.
func TestTheWidestFanout(t *testing.T) {
	const most = 256 << 10
	n := fewer(drover.MaxFanout, 1_000)
	f := connect(t, natsServer(t))
	hire(t, f.url, worker.Options{})
	f.serve(function.New("double", func(_ context.Context, n int) (int, error) { return 2 * n, nil }))
	// Every version of the record passes here, also those that are soon replaced.
	versions, largest := 0, 0
	sub, err := f.nc.Subscribe("$KV."+names.Runs()+".*.wide", func(m *nats.Msg) {
		versions++
		largest = max(largest, len(m.Data))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		t.Fatal(err)
	}
	items, want := make([]int, n), make([]int, n)
	for i := range n {
		items[i], want[i] = i, 2*i
	}
	input, _ := json.Marshal(items)
	begun := time.Now()
	f.publish("wide", drover.VerbStart, drover.StartRequest{Input: input, Definition: text(
		"nodes: {a: {call: double, fanout: {over: run_input}, input: {from: fanout_item}}}\noutput: {from: node:a}\n")})
	o := f.outcome("wide")
	took := time.Since(begun)
	result, _ := json.Marshal(want)
	if o.Status != drover.StatusCompleted || compact(o.Result) != string(result) {
		t.Errorf("the run is %s, %v, with the result %.200s", o.Status, o.Error, o.Result)
	}
	if err := sub.Drain(); err != nil {
		t.Fatal(err)
	}
	until(t, "all versions", func() bool { return !sub.IsValid() })
	t.Logf("%d items in %v; %d versions of the record, the largest of %d bytes", n, took, versions, largest)
	if largest == 0 || largest > most {
		t.Errorf("the largest of %d versions of the record has %d bytes, and may have %d", versions, largest, most)
	}
}

// faults 15: workers and functions come and go while runs begin and end, and
// nothing piles up: neither with the workers, which are all in this process, nor
// with the server. (That records and commands go in the end is shown under a fake
// clock, by the tests of the worker.)
func TestFaults15ChurnLeavesNothingBehind(t *testing.T) {
	f := connect(t, natsServer(t))
	hire(t, f.url, worker.Options{Name: "stays"})
	add := function.New("add", func(_ context.Context, n int) (int, error) { return n + 1, nil })
	rounds, runs := fewer(8, 4), fewer(100, 30)
	round := func(t *testing.T, n int) {
		f := f.in(t) // its connections end with the round
		leaves := hire(t, f.url, worker.Options{Name: "leaves"})
		stop := f.serve(add)
		ids := f.flood(fmt.Sprintf("churn-%d", n), sequence, runs, func(int) json.RawMessage { return number(n) })
		for i, run := range ids {
			f.completes(run, fmt.Sprint(n+3))
			if i == runs/2 {
				leaves()
			}
		}
		stop()
	}
	var first use
	for n := 1; n <= rounds; n++ {
		t.Run(fmt.Sprint("round ", n), func(t *testing.T) { round(t, n) })
		if n == rounds/2 {
			first = f.settles(use{})
		}
	}
	last := f.settles(first)
	t.Logf("after %d and after %d rounds of %d runs: %+v, %+v", rounds/2, rounds, runs, first, last)
}

// use is how much of what may leak there is.
type use struct{ goroutines, files, streams, consumers int }

// settles waits until no more is in use than there was before, or where that is
// nothing, until it stays as it is.
func (f *fleet) settles(before use) use {
	f.t.Helper()
	var now use
	defer func() {
		if f.t.Failed() {
			f.t.Logf("in use: %+v", now)
		}
	}()
	eventually(f.t, fmt.Sprintf("use of no more than %+v", before), func() bool {
		was := now
		now = f.use()
		if before == (use{}) {
			return now == was
		}
		return now.goroutines <= before.goroutines && now.files <= before.files && now.streams <= before.streams && now.consumers <= before.consumers
	})
	return now
}

func (f *fleet) use() use {
	f.t.Helper()
	u := use{goroutines: runtime.NumGoroutine()}
	files, _ := os.ReadDir("/proc/self/fd")
	u.files = len(files)
	list := f.js.ListStreams(f.t.Context())
	for info := range list.Info() {
		u.streams++
		u.consumers += info.State.Consumers
	}
	if err := list.Err(); err != nil {
		f.t.Fatal(err)
	}
	return u
}
