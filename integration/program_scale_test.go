package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/worker"
)

// weighed starts a worker in a process of its own, which tells how much memory
// it uses. It is the binary of the tests, which plays it.
func weighed(t testing.TB, url, name string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, name) //nolint:noctx // the test ends it
	cmd.Env = append(os.Environ(), playsEnv+"=worker", "NATS_URL="+url)
	p := start(t, cmd)
	p.line("serving")
	return p
}

// weighedWorker is what that process does.
func weighedWorker(name string) error {
	nc, err := nats.Connect(os.Getenv("NATS_URL"), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		return err
	}
	defer nc.Close()
	if _, err := nc.Subscribe("memory."+name, func(m *nats.Msg) { _ = m.Respond(inUse()) }); err != nil {
		return err
	}
	w, err := worker.New(nc, worker.Options{Name: name, Lease: 10 * time.Second, CoverAfter: time.Second})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() { // ends with the worker
		<-w.Ready()
		fmt.Println("serving")
	}()
	return w.Run(ctx)
}

// usedBy asks a host or a worker how many bytes it has in use.
func (f *fleet) usedBy(instance string) (bytes int) {
	f.t.Helper()
	m, err := f.nc.Request("memory."+instance, nil, patience)
	if err == nil {
		err = json.Unmarshal(m.Data, &bytes)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return bytes
}

// watched hears of runs that wait, and of outcomes.
type watched struct {
	f        *fleet
	events   chan drover.Event
	outcomes chan drover.Outcome
}

func (f *fleet) watched() *watched {
	f.t.Helper()
	w := &watched{f: f, events: make(chan drover.Event, 1000), outcomes: make(chan drover.Outcome, 1000)}
	hear(f, names.EventAll(), w.events)
	hear(f, names.DoneAll(), w.outcomes)
	if err := f.nc.Flush(); err != nil {
		f.t.Fatal(err)
	}
	return w
}

// hear puts what is published on a subject into a channel, until the test ends.
func hear[T any](f *fleet, subject string, into chan<- T) {
	f.t.Helper()
	sub, err := f.nc.Subscribe(subject, func(m *nats.Msg) {
		var v T
		if err := json.Unmarshal(m.Data, &v); err != nil {
			f.t.Error(err)
		}
		select {
		case into <- v:
		case <-f.t.Context().Done():
		}
	})
	if err == nil {
		err = sub.SetPendingLimits(-1, -1)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// park waits until all of these runs wait.
func (w *watched) park(runs []drover.RunID) {
	w.f.t.Helper()
	left := map[drover.RunID]bool{}
	for _, run := range runs {
		left[run] = true
	}
	for len(left) > 0 {
		e := await(w.f.t, w.events, fmt.Sprintf("%d more runs that wait", len(left)))
		if e.Status == drover.StatusWaiting {
			delete(left, e.RunID)
		}
	}
}

// end waits for the outcomes of runs, by their results.
func (w *watched) end(want map[drover.RunID]string) {
	w.f.t.Helper()
	for timeout := time.After(patience); len(want) > 0; {
		select {
		case <-w.events: // nobody wants to know any more
		case o := <-w.outcomes:
			if result, ok := want[o.RunID]; ok && (o.Status != drover.StatusCompleted || string(o.Result) != result) {
				w.f.t.Errorf("run %s is %s with %s, error %v; want %s", o.RunID, o.Status, o.Result, o.Error, result)
			}
			delete(want, o.RunID)
			timeout = time.After(patience)
		case <-timeout:
			w.f.t.Fatalf("gave up waiting for the end of %d more programs", len(want))
		}
	}
}

// stores publishes so many commands, and returns when all of them are stored. A
// server that has more to do than it can drops some, which are sent once more.
func (f *fleet) stores(n int, command func(i int) (run drover.RunID, verb drover.Verb, body any)) {
	f.t.Helper()
	var next atomic.Int64
	var sending sync.WaitGroup
	for range 64 {
		sending.Go(func() {
			for i := next.Add(1); i <= int64(n) && !f.t.Failed(); i = next.Add(1) {
				run, verb, body := command(int(i - 1))
				if err := f.store(run, verb, body); err != nil {
					f.t.Errorf("the %s of run %s: %v", verb, run, err)
				}
			}
		})
	}
	if sending.Wait(); f.t.Failed() {
		f.t.FailNow()
	}
}

// begin starts programs that wait, with numbers from one on.
func (f *fleet) begin(from, n int) (runs []drover.RunID) {
	f.t.Helper()
	for i := range n {
		runs = append(runs, drover.RunID(fmt.Sprint("parked-", from+i)))
	}
	f.stores(n, func(i int) (drover.RunID, drover.Verb, any) {
		return runs[i], drover.VerbStart, drover.StartRequest{Definition: text("program: parked"), Input: json.RawMessage(fmt.Sprintf(`{"n":%d}`, from+i))}
	})
	return runs
}

// disk is how many bytes the server has stored.
func (f *fleet) disk() uint64 {
	f.t.Helper()
	info, err := f.js.AccountInfo(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	return info.Store
}

// Programs that wait cost their process nothing, but for the bodies that it
// keeps, and their worker next to nothing; and each of them goes on when it is
// time: because of a delivery, or by itself.
func TestPrograms17ManyPrograms(t *testing.T) {
	t.Parallel()
	n := max(*parkedRuns, 8*keeps)
	if testing.Short() {
		n = 8 * keeps
	}
	f := connect(t, natsServer(t))
	weighed(t, f.url, "worker")
	host(t, f.url, "", "host", "parked", "", "parked").line("serving")
	w := f.watched()
	since := time.Now()
	phase := func(what string) {
		t.Logf("%-32s %7.1f s, %6d KiB on the server's disk", what, time.Since(since).Seconds(), f.disk()>>10)
		since = time.Now()
	}
	few := n / 4
	runs := f.begin(0, few)
	phase("few are begun")
	w.park(runs)
	phase("and wait")
	hostFew, workerFew := f.usedBy("host"), f.usedBy("worker")
	more := f.begin(few, n-few)
	phase("many are begun")
	w.park(more)
	phase("and wait")
	runs = append(runs, more...)
	hostMany := f.usedBy("host")
	// A body in memory has 64 KiB and its goroutine.
	if most := hostFew + keeps*(80<<10)/4 + 4<<20; hostMany > most {
		t.Errorf("%d more programs that wait cost their process %d KiB", n-few, (hostMany-hostFew)>>10)
	}
	var workerMany int
	eventually(t, "a worker that has let go of what waits", func() bool {
		workerMany = f.usedBy("worker")
		return workerMany < workerFew+(n-few)<<9+8<<20
	})
	phase("the worker has let go of them")
	t.Logf("%d and %d programs wait: their process uses %d and %d KiB, the worker %d and %d KiB",
		few, n, hostFew>>10, hostMany>>10, workerFew>>10, workerMany>>10)
	want := map[drover.RunID]string{}
	for i, run := range runs {
		want[run] = fmt.Sprint(i + 1000)
	}
	f.stores(n, func(i int) (drover.RunID, drover.Verb, any) {
		return runs[i], drover.VerbDeliver, drover.DeliverRequest{Name: "more", ID: "1", Payload: json.RawMessage("1000")}
	})
	phase("all were told to go on")
	w.end(want)
	phase("all were woken, and are over")
}
