package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/worker"
)

// A URL refuses connections while 400 runs end, and while the worker is replaced.
// Then somebody listens there.
func TestDelivery10FourHundredOutcomesWaitForAURL(t *testing.T) {
	const runs = 400
	s := natstest.New(t)
	opts := worker.Options{Name: "one", WebhookSecrets: secretsFile(t), AllowPrivate: true}
	first := beginOn(t, s.Connect(), opts)
	a := newAudience(t, s)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ids := make([]drover.DeliveryID, runs)
	for i := range runs {
		run := drover.RunID(fmt.Sprint("r", i))
		ids[i] = drover.DeliveryIDOf(run, 0)
		a.start(run, oneStep, drover.Notify{URL: "http://" + address + "/told"})
	}
	if d := a.recorded(drover.DeliveryPending, ids...)[ids[runs-1]]; d.Attempts != 0 {
		t.Errorf("nobody is there, and %d attempts are counted: %+v", d.Attempts, d)
	}
	first.end(t)
	beginOn(t, s.Connect(), opts)

	verifier, err := client.NewWebhookVerifier(webhookSecret)
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			_, err = verifier.Verify(r.Header, body)
		}
		if err != nil {
			t.Error(err)
		}
		a.take(r.Header.Get("webhook-id"), body)
	})}
	if l, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	serving := make(chan error, 1)
	returned := time.Now()
	go func() { serving <- web.Serve(l) }()
	defer func() {
		_ = web.Close()
		if err := <-serving; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	a.next(10 * time.Second)
	t.Logf("the first came after %s", time.Since(returned))
	for range runs - 1 {
		a.next(patience)
	}
	t.Logf("the last came after %s", time.Since(returned))
	for id, d := range a.recorded(drover.DeliveryDelivered, ids...) {
		if _, times := a.told(id); times != 1 || d.Attempts != 1 {
			t.Errorf("%s came %d times, in %d attempts", id, times, d.Attempts)
		}
	}
}

func TestDelivery08OnlyWhatFailedOfABatchComesAgain(t *testing.T) {
	s := natstest.New(t)
	begin(t, s, "one")
	a := newAudience(t, s)
	const runs, failures = 60, 2
	poor := drover.DeliveryIDOf("r7", 0)
	failed, batches, most := 0, 0, 0
	a.listens("app.batch", func(m *nats.Msg) {
		var batch drover.OutcomeBatch
		if err := json.Unmarshal(m.Data, &batch); err != nil {
			t.Error(err)
		}
		batches++
		most = max(most, len(batch.Outcomes))
		var receipts drover.BatchReceipts
		for _, body := range batch.Outcomes {
			var o drover.Outcome
			if err := json.Unmarshal(body, &o); err != nil {
				t.Error(err)
			}
			r := drover.BatchReceipt{DeliveryID: o.DeliveryID, Receipt: "thanks"}
			if o.DeliveryID == poor && failed < failures {
				failed++
				r = drover.BatchReceipt{DeliveryID: o.DeliveryID, Error: drover.Errorf(drover.CodeFailed, "no room for this one")}
			}
			receipts.Receipts = append(receipts.Receipts, r)
			a.take(string(o.DeliveryID), body)
		}
		data, _ := json.Marshal(receipts)
		_ = m.Respond(data)
	})
	to := drover.Notify{Subject: "app.batch", Batch: &drover.Batch{Max: 20, Wait: drover.Duration(100 * time.Millisecond)}}
	ids := make([]drover.DeliveryID, runs)
	for i := range runs {
		run := drover.RunID(fmt.Sprint("r", i))
		ids[i] = drover.DeliveryIDOf(run, 0)
		a.start(run, oneStep, to)
	}
	for id, d := range a.recorded(drover.DeliveryDelivered, ids...) {
		want := 1
		if id == poor {
			want = failures + 1
		}
		if _, times := a.told(id); times != want || d.Attempts != want || d.Receipt != "thanks" {
			t.Errorf("%s came %d times, in %d attempts, receipt %q; want %d", id, times, d.Attempts, d.Receipt, want)
		}
	}
	t.Logf("%d outcomes in %d batches, of at most %d", runs, batches, most)
	if most < 2 || most > 20 {
		t.Errorf("the largest batch had %d outcomes", most)
	}
}

func TestDelivery08SlowSubscribersDelayNobodyElse(t *testing.T) {
	const slow = 1000
	s := natstest.New(t)
	begin(t, s, "one")
	a := newAudience(t, s)
	held := make(chan *nats.Msg, slow)
	a.listens("slow.*", func(m *nats.Msg) { held <- m })
	a.listens("quick", a.thanks)
	for i := range slow {
		publish(t, a.server.JetStream(), fmt.Sprint("s", i), drover.VerbStart, drover.StartRequest{
			Definition: text(t, oneStep), Notify: drover.NotifyList{{Subject: fmt.Sprint("slow.", i), Timeout: drover.Duration(drover.MaxReceiptTime)}},
		})
	}
	var asked []*nats.Msg
	for range slow {
		asked = append(asked, <-held)
	}
	began := time.Now()
	a.start("quick", oneStep, drover.Notify{Subject: "quick"})
	if id := a.next(5 * time.Second); id != "quick:terminal:0" {
		t.Errorf("told of %s", id)
	}
	t.Logf("with %d slow subscribers another one was told %s after the start of its run", slow, time.Since(began))
	for _, m := range asked {
		_ = m.Respond(nil)
	}
	a.recorded(drover.DeliveryDelivered, "quick:terminal:0", "s0:terminal:0", "s999:terminal:0")
}

// However a run ends, its subscribers are told so.
func TestDelivery05EveryEndIsTold(t *testing.T) {
	s := natstest.New(t)
	begin(t, s, "one")
	var tries atomic.Int64
	serve(
		t, s, function.New("fine", func(context.Context, any) (int, error) { return 1, nil }),
		function.New("broken", func(context.Context, any) (int, error) { return 0, function.Permanent(errors.New("broken")) }),
		function.New("second", func(context.Context, any) (int, error) {
			if tries.Add(1) == 1 {
				return 0, errors.New("not yet")
			}
			return 2, nil
		}),
	)
	a := newAudience(t, s)
	a.listens("told", a.thanks)
	put(t, a.nc, "child", "notify: {subject: told}\n"+oneStep)
	put(t, a.nc, "leading", `
notify: {subject: told}
nodes:
  inbox: {wait: {hook: leader, on_unread: restart}}
  go: {wait: {name: go}, depends_on: [inbox]}
output: {from: node:go}`)
	to := drover.Notify{Subject: "told"}
	a.start("completed", oneStep, to)
	a.start("failed", "nodes: {a: {call: broken}}\noutput: {from: node:a}\n", to)
	a.start("retried", "nodes: {a: {call: second, retry: {max_attempts: 3, initial: 10ms}}}\noutput: {from: node:a}\n", to)
	a.start("cancelled", "nodes: {a: {wait: {name: never}}}\noutput: {from: node:a}\n", to)
	a.start("late", "timeout: 50ms\nnodes: {a: {wait: {name: never}}}\noutput: {from: node:a}\n", to)
	a.start("compensated", "nodes:\n  a: {call: fine, compensate: {call: fine}}\n  b: {call: broken, depends_on: [a]}\noutput: {from: node:b}\n", to)
	a.start("stuck", "nodes:\n  a: {call: fine, compensate: {call: broken}}\n  b: {call: broken, depends_on: [a]}\noutput: {from: node:b}\n", to)
	a.start("parent", "nodes: {a: {run: {workflow: child}}}\noutput: {from: node:a}\n", to)
	if _, err := a.Stop(t.Context(), "cancelled", "enough"); err != nil {
		t.Fatal(err)
	}
	for n := range 2 { // the second is not read, and has a successor started
		if _, err := deliver(t.Context(), a.nc, drover.HookRequest{
			Token: "leader", Payload: json.RawMessage(fmt.Sprint(n)), ID: fmt.Sprint(n), Start: &drover.StartRequest{Workflow: "leading", RunID: "lead"},
		}); err != nil {
			t.Fatal(err)
		}
	}
	successor := drover.SuccessorID("lead")
	for _, run := range []drover.RunID{"lead", successor} {
		a.until(func(ctx context.Context) (bool, string) {
			_, err := a.Status(ctx, drover.RunRequest{RunID: run})
			return err == nil, fmt.Sprint(err)
		})
		if _, err := a.Deliver(t.Context(), drover.DeliverRequest{RunID: run, Name: "go"}); err != nil {
			t.Fatal(err)
		}
		a.recorded(drover.DeliveryDelivered, drover.DeliveryIDOf(run, 0))
	}
	status, err := a.Status(t.Context(), drover.RunRequest{RunID: "parent"})
	if err != nil || len(status.Run.Nodes) != 1 {
		t.Fatalf("parent %+v, error %v", status, err)
	}
	child := status.Run.Nodes[0].Child
	for run, want := range map[drover.RunID]drover.Status{
		"completed": drover.StatusCompleted, "failed": drover.StatusFailed, "cancelled": drover.StatusCancelled, "late": drover.StatusFailed,
		"compensated": drover.StatusCompensated, "stuck": drover.StatusCompensationFailed, "retried": drover.StatusCompleted,
		"parent": drover.StatusCompleted, child: drover.StatusCompleted, "lead": drover.StatusCompleted, successor: drover.StatusCompleted,
	} {
		id := drover.DeliveryIDOf(run, 0)
		d := a.recorded(drover.DeliveryDelivered, id)[id]
		o, times := a.told(id)
		if o.Status != want || o.RunID != run || times != 1 || d.Attempts != 1 || d.Outcome != want || o.EndedAt.IsZero() {
			t.Errorf("run %s: told %d times %+v; delivery %+v", run, times, o, d)
		}
		if (o.Error == nil) != (want == drover.StatusCompleted) {
			t.Errorf("run %s: error %v", run, o.Error)
		}
	}
}

// A function is told by a call, which waits for it; also one that the run has
// just called, where its calls are withdrawn.
func TestDelivery01AFunctionIsTold(t *testing.T) {
	s := natstest.New(t)
	begin(t, s, "one")
	a := newAudience(t, s)
	const runs = 20
	big := strings.Repeat("x", 5000) // not in the record
	var ids []drover.DeliveryID
	for i := range runs {
		run := drover.RunID(fmt.Sprint("r", i))
		a.start(run, "nodes: {a: {set: {with: "+big+"}}}\noutput: {from: node:a}\n", drover.Notify{Function: "app.told"})
		ids = append(ids, drover.DeliveryIDOf(run, 0))
	}
	a.start("stopped", "nodes: {a: {call: app.told}}\noutput: {from: node:a}\n", drover.Notify{Function: "app.told"})
	ids = append(ids, "stopped:terminal:0")
	if _, err := a.Stop(t.Context(), "stopped", ""); err != nil {
		t.Fatal(err)
	}
	a.recorded(drover.DeliveryPending, ids...)

	var fails atomic.Int64
	serve(t, s, function.New("app.told", func(ctx context.Context, body json.RawMessage) (string, error) {
		var o drover.Outcome
		if err := json.Unmarshal(body, &o); err != nil || o.DeliveryID == "" {
			return "", nil // the call of the node, which was too late to be withdrawn
		}
		a.take(string(o.DeliveryID), body)
		if o.RunID == "r3" && fails.Add(1) == 1 {
			return "", errors.New("not now")
		}
		return "thanks", nil
	}))
	for id, d := range a.recorded(drover.DeliveryDelivered, ids...) {
		want := 1
		if id == "r3:terminal:0" {
			want = 2
		}
		o, times := a.told(id)
		if times != want || d.Attempts != want || d.Receipt != `"thanks"` {
			t.Errorf("%s came %d times, in %d attempts, receipt %q", id, times, d.Attempts, d.Receipt)
		}
		if o.RunID == "stopped" && o.Status != drover.StatusCancelled || o.RunID != "stopped" && string(o.Result) != `"`+big+`"` {
			t.Errorf("%s: told %.200s %s", id, o.Status, o.Result)
		}
	}
}

// What has no receipt in as many attempts as it may have is dead, says why, and
// lives again when it is replayed.
func TestDelivery12DeadAfterItsAttemptsAndReplayed(t *testing.T) {
	s := natstest.New(t)
	begin(t, s, "one")
	a := newAudience(t, s)
	var mu sync.Mutex
	refusing := true
	a.listens("told", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		if refusing {
			a.take(m.Header.Get("Drover-Delivery"), m.Data)
			_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Nats-Service-Error": {"out of paper"}}})
			return
		}
		a.thanks(m)
	})
	a.start("r", oneStep, drover.Notify{Subject: "told", MaxAttempts: 2})
	const id = "r:terminal:0"
	d := a.recorded(drover.DeliveryDead, id)[id]
	if _, times := a.told(id); times != 2 || d.Attempts != 2 || d.LastError == nil || !strings.Contains(d.LastError.Message, "out of paper") {
		t.Errorf("came %d times: %+v, %v", times, d, d.LastError)
	}
	list, err := a.ListDeliveries(t.Context(), drover.DeliveryListRequest{DeliveryFilter: drover.DeliveryFilter{Status: drover.DeliveryDead}})
	if err != nil || len(list.Deliveries) != 1 || list.Deliveries[0].ID != id {
		t.Errorf("the list: %+v, error %v", list, err)
	}
	mu.Lock()
	refusing = false
	mu.Unlock()
	if r, err := a.ReplayDeliveries(t.Context(), drover.ReplayRequest{DeliveryFilter: drover.DeliveryFilter{To: "told"}}); err != nil || r.Replayed != 1 {
		t.Fatalf("replayed %+v, error %v", r, err)
	}
	d = a.recorded(drover.DeliveryDelivered, id)[id]
	if _, times := a.told(id); times != 3 || d.Attempts != 3 || d.Receipt != "thanks" {
		t.Errorf("came %d times: %+v", times, d)
	}
}
