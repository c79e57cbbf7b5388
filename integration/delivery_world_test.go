package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/subjects"
)

const webhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// hearers are subscribers of every kind, each of which is told of every run, and
// what they were told.
type hearers struct {
	*fleet
	web    *httptest.Server
	notify drover.NotifyList
	flags  []string // of the workers
	runs   []drover.RunID

	mu     sync.Mutex
	times  map[drover.DeliveryID]int
	bodies map[drover.DeliveryID][]byte
	more   chan struct{} // has an element when somebody was told
}

// kinds are the indexes of the subscribers.
var kinds = []string{"subject", "stream_subject", "url", "function"}

func newHearers(f *fleet) *hearers {
	f.t.Helper()
	h := &hearers{fleet: f, times: map[drover.DeliveryID]int{}, bodies: map[drover.DeliveryID][]byte{}, more: make(chan struct{}, 1)}
	h.listen(f.nc)
	verifier, err := client.NewWebhookVerifier(webhookSecret)
	if err != nil {
		f.t.Fatal(err)
	}
	h.web = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // whoever sent it was killed
		}
		if _, err := verifier.Verify(r.Header, body); err != nil {
			f.t.Error(err)
		}
		h.take(r.Header.Get("webhook-id"), body)
	}))
	f.t.Cleanup(h.web.Close)
	f.serve(append(functionsOf(newTally()), function.New("hear", func(_ context.Context, body json.RawMessage) (string, error) {
		var o drover.Outcome
		err := json.Unmarshal(body, &o)
		h.take(string(o.DeliveryID), body)
		return "thanks", err
	}))...)
	secrets := filepath.Join(f.t.TempDir(), "secrets.yaml")
	if err := os.WriteFile(secrets, []byte("default: "+webhookSecret+"\n"), 0o600); err != nil {
		f.t.Fatal(err)
	}
	h.flags = []string{"--webhook-secrets", secrets, "--allow-private"}
	quick := drover.Duration(time.Second) // the attempt of a worker that was killed is made again after this and 5 s
	h.notify = drover.NotifyList{
		{Subject: "hear.it", Timeout: quick},
		{StreamSubject: "hear.stored", Timeout: quick},
		{URL: h.web.URL + "/heard", Timeout: quick},
		{Function: "hear"},
	}
	return h
}

// listen has those who listen on subjects answer.
func (h *hearers) listen(nc *nats.Conn) {
	h.t.Helper()
	_, err := nc.Subscribe("hear.*", func(m *nats.Msg) {
		h.take(m.Header.Get(subjects.HeaderDelivery), m.Data)
		if m.Subject == "hear.it" {
			_ = m.Respond([]byte("thanks"))
		}
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// stores makes the stream of what is stored.
func (h *hearers) stores() {
	h.t.Helper()
	_, err := h.js.CreateStream(h.t.Context(), jetstream.StreamConfig{Name: "HEARD", Subjects: []string{"hear.stored"}})
	if err != nil {
		h.t.Fatal(err)
	}
}

// take takes in what a subscriber is told: it is the same each time.
func (h *hearers) take(id string, body []byte) {
	var o drover.Outcome
	if err := json.Unmarshal(body, &o); err != nil || string(o.DeliveryID) != id {
		h.t.Errorf("delivery %q has the body %.300s: %v", id, body, err)
	}
	h.mu.Lock()
	if was, ok := h.bodies[o.DeliveryID]; ok && !bytes.Equal(was, body) {
		h.t.Errorf("delivery %s has two bodies:\n%s\n%s", id, was, body)
	}
	h.bodies[o.DeliveryID] = bytes.Clone(body)
	h.times[o.DeliveryID]++
	h.mu.Unlock()
	select {
	case h.more <- struct{}{}:
	default:
	}
}

// start starts one more run, until that is acknowledged.
func (h *hearers) start(notify drover.NotifyList) {
	h.t.Helper()
	run := drover.RunID(fmt.Sprint("r", len(h.runs)))
	h.runs = append(h.runs, run)
	start := drover.StartRequest{Definition: text(sequence), Input: number(1), Notify: notify}
	until(h.t, "the start of "+string(run), func() bool {
		ctx, cancel := context.WithTimeout(h.t.Context(), answer)
		defer cancel()
		return h.tryPublish(ctx, run, drover.VerbStart, start) == nil
	})
}

// heard is how many deliveries have come.
func (h *hearers) heard() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.times)
}

// hears waits until so many deliveries have come.
func (h *hearers) hears(n int) {
	h.t.Helper()
	for h.heard() < n {
		await(h.t, h.more, fmt.Sprintf("%d deliveries, where %d came", n, h.heard()))
	}
}

// delivered waits until the records say that everybody was told, and counts the
// repeats. honest demands that no attempt is counted that nobody saw.
func (h *hearers) delivered(honest bool) {
	h.t.Helper()
	repeats, most := 0, 0
	for _, run := range h.runs {
		for i := range h.notify {
			id := drover.DeliveryIDOf(run, i)
			var d drover.RunDelivery
			until(h.t, "a record that says that "+string(id)+" was delivered", func() bool {
				var err error
				d, err = h.ShowDelivery(h.t.Context(), id)
				if err != nil && !errors.Is(err, drover.CodeUnavailable) {
					h.t.Fatalf("delivery %s: %v", id, err)
				}
				return err == nil && d.Status == drover.DeliveryDelivered
			})
			h.mu.Lock()
			times, body := h.times[id], h.bodies[id]
			h.mu.Unlock()
			var o drover.Outcome
			if err := json.Unmarshal(body, &o); err != nil || o.RunID != run || o.Status != drover.StatusCompleted || compact(o.Result) != "4" {
				h.t.Errorf("delivery %s has the body %.300s: %v", id, body, err)
			}
			if times < 1 || d.Attempts < 1 || honest && d.Attempts > times {
				h.t.Errorf("delivery %s came %d times, in %d attempts", id, times, d.Attempts)
			}
			repeats += max(times-1, 0)
			most = max(most, times)
		}
	}
	list, err := h.ListDeliveries(h.t.Context(), drover.DeliveryListRequest{})
	if err != nil || len(list.Deliveries) > 0 {
		h.t.Errorf("after all was delivered the list has %+v, error %v", list, err)
	}
	h.t.Logf("%d runs, %d deliveries, %d repeats, at most %d times the same", len(h.runs), len(h.runs)*len(h.notify), repeats, most)
}

// storedOnce demands that the stream has each delivery once.
func (h *hearers) storedOnce() {
	h.t.Helper()
	stored := map[string]int{}
	for _, m := range h.all("HEARD") {
		stored[m.Headers().Get(subjects.HeaderDelivery)]++
	}
	for _, run := range h.runs {
		if id := drover.DeliveryIDOf(run, 1); stored[string(id)] != 1 {
			h.t.Errorf("the stream has delivery %s %d times", id, stored[string(id)])
		}
	}
}

// newDelivering is a crew whose runs are told of.
func newDelivering(t *testing.T, url string, size int) (*hearers, *crew) {
	t.Helper()
	f := connect(t, url)
	h := newHearers(f)
	return h, newCrew(f, size, h.flags...)
}
