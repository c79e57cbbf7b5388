package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// How long a caller waits for the answer of a run.
const (
	defaultWait = 30 * time.Second
	longestWait = 5 * time.Minute
)

// retryAfter is in how many seconds a caller may try again.
const retryAfter = "1"

const jsonType = "application/json"

// answer gives the answer to a delivery that was accepted.
func (g *Gateway) answer(w http.ResponseWriter, r *http.Request, a *drover.Answer, in *inbox) {
	switch {
	case a == nil:
		empty(w, http.StatusAccepted)
	case !a.Run:
		say(w, cmp.Or(a.Status, http.StatusOK), a.With)
	default:
		if status, data, ok := g.await(r.Context(), waitFor(a), in.ch); ok {
			say(w, status, data)
			return
		}
		empty(w, http.StatusAccepted)
	}
}

// waitFor is how long to wait for the answer of a run.
func waitFor(a *drover.Answer) time.Duration {
	return min(cmp.Or(max(time.Duration(a.Timeout), 0), defaultWait), longestWait)
}

// await waits for what a run answers. It gives up when that takes too long, when
// the caller has gone, and when the gateway ends.
func (g *Gateway) await(ctx context.Context, limit time.Duration, answers <-chan *nats.Msg) (status int, data []byte, ok bool) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for over := false; !over; {
		select {
		case m := <-answers:
			if status, ok = said(m); ok {
				return status, m.Data, true
			}
		case <-timer.C:
			over = true
		case <-g.draining:
			over = true
		case <-ctx.Done():
			over = true
		}
	}
	select {
	case m := <-answers: // it came at the last moment
		status, ok = said(m)
		return status, m.Data, ok
	default:
		return 0, nil, false
	}
}

// said gives the status of HTTP that a run answers with. Anything else on an
// inbox is no answer.
func said(m *nats.Msg) (status int, ok bool) {
	status, err := strconv.Atoi(m.Header.Get(subjects.HeaderAnswered))
	return status, err == nil && status >= 200 && status <= 599 && json.Valid(m.Data)
}

// say answers with JSON, where the status allows a body.
func say(w http.ResponseWriter, status int, data []byte) {
	if status == http.StatusNoContent || status == http.StatusNotModified {
		empty(w, status)
		return
	}
	w.Header().Set("Content-Type", jsonType)
	write(w, status, data)
}

// busy answers what may be tried again.
func busy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", retryAfter)
	empty(w, http.StatusServiceUnavailable)
}

func empty(w http.ResponseWriter, status int) { write(w, status, nil) }

// write answers. A caller that does not take the answer in time is cut off.
func write(w http.ResponseWriter, status int, data []byte) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime)) // a connection that has none is a test
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if status != http.StatusNoContent && status != http.StatusNotModified {
		h.Set("Content-Length", strconv.Itoa(len(data)))
	}
	w.WriteHeader(status)
	_, _ = w.Write(data) // nobody is there to be told
}
