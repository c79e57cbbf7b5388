package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/subjects"
)

// duplicates is how long a stream of these worlds knows the id of a message.
const duplicates = 2 * time.Minute

// stream is one of a server: it stores a message once for each id, as long as it
// knows that.
type stream struct{ messages []stored }

type stored struct {
	subject, id string
	data        []byte
	at          time.Time
}

// store stores a message, or finds that it has it.
func (s *stream) store(now time.Time, subject, id string, data []byte) (seq int, duplicate bool) {
	for i := len(s.messages) - 1; i >= 0; i-- {
		if m := &s.messages[i]; m.id == id && now.Sub(m.at) < duplicates {
			return i + 1, true
		}
	}
	s.messages = append(s.messages, stored{subject, id, bytes.Clone(data), now})
	return len(s.messages), false
}

// of gives the messages with an id, of all runs that had it.
func (s *stream) of(id drover.DeliveryID) []stored {
	var all []stored
	for _, m := range s.messages {
		if of, _, _ := strings.Cut(m.id, "@"); of == string(id) {
			all = append(all, m)
		}
	}
	return all
}

// keep has a stream take an outcome, and acknowledge it or not.
func (w *World) keep(msg *nats.Msg, a *attempt) (*nats.Msg, map[drover.DeliveryID]bool) {
	id := msg.Header.Get(subjects.HeaderMessageID)
	if msg.Subject != a.d.Notify.StreamSubject || id != subjects.MessageID(string(a.d.ID), a.told.StartedAt) || msg.Header.Get(subjects.HeaderDelivery) != string(a.d.ID) {
		w.violated("%s is published on %q with %v", a.d.ID, msg.Subject, msg.Header)
	}
	err := w.answerOf(a)
	switch {
	case err == nil:
	case err.Code == drover.CodeTimeout && w.chance(0.5): // it did not get there
		return nil, nil
	case err.Code == drover.CodeTimeout: // the acknowledgement is lost
		w.stored(msg, a)
		w.saw("Delivery01 a stream stored what it did not acknowledge")
		return nil, nil
	case err.Permanent:
		w.saw("Delivery01 a stream takes no message so large")
		return &nats.Msg{Data: []byte(`{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"},"stream":"KEPT","seq":0}`)}, nil
	case err.RetryAfter > 0:
		w.saw("Delivery01 something that is no stream answered")
		return &nats.Msg{Data: []byte([]string{`ok`, `{}`, ``, `{"seq":4}`}[w.rng.IntN(4)])}, nil
	default:
		w.saw("Delivery01 a stream was full")
		return &nats.Msg{Data: []byte(`{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"KEPT","seq":0}`)}, nil
	}
	seq, duplicate := w.stored(msg, a)
	if duplicate {
		w.saw("Delivery01 a stream dropped what it had")
	}
	ack, _ := json.Marshal(map[string]any{"stream": "KEPT", "seq": seq, "duplicate": duplicate}) // its fields are plain
	w.saw("Delivery01 a stream_subject gave a receipt")
	return &nats.Msg{Data: ack}, map[drover.DeliveryID]bool{a.d.ID: true}
}

func (w *World) stored(msg *nats.Msg, a *attempt) (int, bool) {
	w.reach(a, msg.Data)
	return w.kept.store(w.now, msg.Subject, msg.Header.Get(subjects.HeaderMessageID), msg.Data)
}

// publishOutcome publishes the outcome of a run for whoever listens.
func (w *World) publishOutcome(e *machine.Effect) {
	data := w.outcomeBytes(e)
	if was, ok := w.outcomes[e.Run]; ok && !bytes.Equal(was, data) {
		w.violated("run %s has two outcomes:\n%s\n%s", e.Run, was, data)
	}
	w.outcomes[e.Run] = data
	id := subjects.MessageID(string(e.Outcome.DeliveryID), e.Outcome.StartedAt)
	if _, duplicate := w.done.store(w.now, names.Done(e.Outcome.Workflow, e.Run), id, data); duplicate {
		w.saw("Delivery03 an outcome was published again")
	}
}

// published holds that a run that is over is in the stream of outcomes, as those
// have it who were told by themselves.
func (w *World) published(run drover.RunID) {
	id := drover.DeliveryID(string(run) + ":terminal")
	all := w.done.of(id)
	if len(all) == 0 {
		w.violated("run %s is %s, and not in the stream of outcomes", run, w.finals[run].status)
		return
	}
	last := &all[len(all)-1]
	var o drover.Outcome
	err := json.Unmarshal(last.data, &o)
	if err != nil || o.DeliveryID != id || last.id != subjects.MessageID(string(id), o.StartedAt) || o.RunID != run || o.Status != w.finals[run].status || last.subject != names.Done(o.Workflow, run) {
		w.violated("run %s is %s, and published on %s as %s: %v", run, w.finals[run].status, last.subject, last.data, err)
	}
	w.saw("Delivery03 a run is in the stream as " + string(o.Status))
	for i := range w.told.latest[run].subs {
		id := drover.DeliveryIDOf(run, i)
		sent, ok := w.told.sent[machine.Token(w.told.latest[run].secret, string(id))]
		if ok && !bytes.Equal(anonymous(sent, id), anonymous(last.data, o.DeliveryID)) {
			w.violated("run %s is published as\n%s\nand delivered as\n%s", run, last.data, sent)
		}
	}
}

// anonymous is an outcome without the id of its delivery.
func anonymous(data []byte, id drover.DeliveryID) []byte {
	return []byte(strings.Replace(string(data), fmt.Sprintf("%q", id), "", 1))
}

// storedToo holds that what counts as delivered to a stream is in it, and there
// once for as long as it knows the id.
func (w *World) storedToo(id drover.DeliveryID) {
	all := w.kept.of(id)
	if len(all) == 0 {
		w.violated("delivery %s counts as stored, and is in no stream", id)
	}
	for i := 1; i < len(all); i++ {
		if all[i].id == all[i-1].id && all[i].at.Sub(all[i-1].at) < duplicates {
			w.violated("delivery %s is in its stream twice, at %s and %s", id, all[i-1].at, all[i].at)
		}
	}
}
