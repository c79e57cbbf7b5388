package sim

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/delivery"
	"github.com/droverhq/drover/subjects"
)

var names = subjects.Default()

// maxPayload is what a message may have in these worlds.
const maxPayload = 1 << 20

// exchange sends the message of an attempt, and gives what the runs hear of it, and
// after which time. Message and answer are those of the workers; whoever gets the
// one and gives the other is of this world.
func (w *World) exchange(all []*attempt, away bool) ([]drover.HeardMessage, time.Duration) {
	list := jobs(all)
	msg, bad := delivery.Message(names, maxPayload, list)
	if bad != nil {
		w.violated("there is no message for %s: %v", all[0].d.ID, bad)
		return delivery.Expired(list), 0
	}
	if away {
		return delivery.Judge(list, &nats.Msg{Header: nats.Header{subjects.HeaderStatus: {"503"}}}), 0
	}
	patience := timeout(all)
	yields := true
	for _, a := range all {
		w.made(a)
		yields = yields && w.yields(a)
	}
	if !yields && w.chance(0.03) {
		w.saw("Delivery08 a request was lost")
		return delivery.Expired(list), patience
	}
	answer, given := w.receive(msg, all)
	if answer == nil {
		return delivery.Expired(list), patience
	}
	if !yields && w.chance(0.05) {
		for range given {
			w.saw("Delivery01 a receipt of a " + all[0].d.Notify.Kind() + " was lost")
		}
		return delivery.Expired(list), patience
	}
	heard := delivery.Judge(list, answer)
	for i, a := range all {
		if given[a.d.ID] != (heard[i].Error == nil) || heard[i].Unmade {
			w.violated("%s has a receipt: %t, and what is heard is %+v\n%s", a.d.ID, given[a.d.ID], heard[i], answer.Data)
		}
		if given[a.d.ID] {
			w.gives(a)
		}
	}
	return heard, w.latency()
}

// timeout is how long an answer is waited for.
func timeout(all []*attempt) time.Duration {
	longest := time.Duration(0)
	for _, a := range all {
		patience := time.Duration(a.d.Notify.Timeout)
		if patience == 0 {
			patience = drover.DefaultReceiptTime
		}
		longest = max(longest, patience)
	}
	return longest
}

// receive has a subscriber answer a message, or not; given says of which deliveries
// the answer is a receipt.
func (w *World) receive(msg *nats.Msg, all []*attempt) (answer *nats.Msg, given map[drover.DeliveryID]bool) {
	a := all[0]
	n := &a.d.Notify
	switch {
	case n.StreamSubject != "":
		return w.keep(msg, a)
	case n.Batch != nil:
		return w.receiveBatch(msg, all)
	case n.Session != "":
		w.listen(msg, a)
	case msg.Subject != n.Subject || msg.Header.Get(subjects.HeaderDelivery) != string(a.d.ID):
		w.violated("%s is sent to %q with %v", a.d.ID, msg.Subject, msg.Header)
	default:
		w.reach(a, msg.Data)
	}
	err := w.answerOf(a)
	if err == nil {
		w.saw("Delivery01 a " + n.Kind() + " gave a receipt")
		return &nats.Msg{Data: []byte("ok")}, map[drover.DeliveryID]bool{a.d.ID: true}
	}
	return refusal(err), nil
}

// refusal is an answer that is an error: one of Drover, or of a NATS service; nil
// where there is none in time.
func refusal(err *drover.Error) *nats.Msg {
	switch {
	case err.Code == drover.CodeTimeout:
		return nil
	case err.Permanent || err.RetryAfter > 0:
		data, _ := json.Marshal(err) // its fields are plain
		return &nats.Msg{Header: nats.Header{subjects.HeaderCode: {string(err.Code)}}, Data: data}
	}
	return &nats.Msg{Header: nats.Header{micro.ErrorHeader: {err.Message}, micro.ErrorCodeHeader: {"500"}}}
}

// answerOf is what a target says of a delivery; nil is a receipt.
func (w *World) answerOf(a *attempt) *drover.Error {
	if broken(targetOf(&a.d.Notify)) {
		return drover.Errorf(drover.CodeFailed, "it is broken")
	}
	if w.yields(a) {
		return nil
	}
	switch n := w.rng.IntN(50); {
	case n < 8:
		return drover.Errorf(drover.CodeFailed, "not now")
	case n < 9:
		return &drover.Error{Code: drover.CodeFailed, Message: "never", Permanent: true}
	case n < 11:
		return &drover.Error{Code: drover.CodeFailed, Message: "later", RetryAfter: drover.Duration(20 * time.Second)}
	case n < 14:
		return drover.Errorf(drover.CodeTimeout, "no receipt came")
	}
	return nil
}

// yields reports whether a delivery was tried often enough for a target to take it.
func (w *World) yields(a *attempt) bool {
	made := 0
	for _, n := range w.told.made[a.d.Token] {
		made += n
	}
	return made > 6
}

// gives notes that a worker has the receipt of a delivery.
func (w *World) gives(a *attempt) { w.told.got[a.d.Token] = true }

// listen has a session hear of an outcome, as text. It must be the one that asked
// for the run, as the service saw it.
func (w *World) listen(msg *nats.Msg, a *attempt) {
	who, ok := strings.CutPrefix(msg.Subject, names.Session(""))
	if !ok || who != w.told.callers[a.run] {
		w.violated("run %s was asked for by session %q, and %q is told", a.run, w.told.callers[a.run], msg.Subject)
	}
	var o drover.Outcome
	var reply drover.SessionReply
	if err := json.Unmarshal(a.data, &o); err != nil {
		w.violated("the outcome of %s: %v", a.run, err)
	}
	err := json.Unmarshal(msg.Data, &reply)
	if err != nil || reply.ID != "wfreply_"+string(a.run) || reply.Session != who || reply.RunID != a.run || reply.Status != o.Status {
		w.violated("session %s of run %s is told %s: %v", who, a.run, msg.Data, err)
	}
	text, template := strings.CutPrefix(reply.Text, sessionTemplate+"\n\n")
	if !strings.HasPrefix(text, "Run "+string(a.run)+" ") || !strings.Contains(text, string(o.Status)) || template != (a.d.Notify.Template != "") {
		w.violated("session %s of run %s is told the text %q", who, a.run, reply.Text)
	}
	if was := w.told.texts[a.d.Token]; was != nil && !bytes.Equal(was, msg.Data) {
		w.violated("session %s is told two texts:\n%s\n%s", who, was, msg.Data)
	}
	w.told.texts[a.d.Token] = msg.Data
	w.reach(a, a.data)
	w.saw("Delivery02 a session was told " + string(o.Status))
}

// batch is what waits in a worker for others to the same subscriber.
type batch struct{ all []*attempt }

// gather has an attempt go with others: when the batch is full, or its first one
// has waited for long enough.
func (w *World) gather(o *owner, a *attempt) {
	key := delivery.Target(&a.d.Notify)
	b := o.batches[key]
	if b == nil {
		b = &batch{}
		o.batches[key] = b
		w.at(w.now.Add(time.Duration(a.d.Notify.Batch.Wait)+w.latency()), func() { w.leave(o, key, b) })
	}
	if b.all = append(b.all, a); len(b.all) == a.d.Notify.Batch.Max {
		w.leave(o, key, b)
	}
}

func (w *World) leave(o *owner, key string, b *batch) {
	if o.batches[key] != b {
		return // it has left
	}
	delete(o.batches, key)
	w.soon(func() { w.try(o, b.all) })
}

// receiveBatch has a subscriber answer a batch: each outcome by itself, or not at
// all, or the whole in a way that has no receipt.
func (w *World) receiveBatch(msg *nats.Msg, all []*attempt) (*nats.Msg, map[drover.DeliveryID]bool) {
	var sent drover.OutcomeBatch
	err := json.Unmarshal(msg.Data, &sent)
	if n := all[0].d.Notify; err != nil || len(sent.Outcomes) != len(all) || len(all) > n.Batch.Max || msg.Subject != n.Subject || msg.Header.Get(subjects.HeaderOutcomes) != strconv.Itoa(len(all)) {
		w.violated("%d deliveries are sent to %q as %.300s: %v", len(all), msg.Subject, msg.Data, err)
		return nil, nil
	}
	receipts, given, none := []drover.BatchReceipt{}, map[drover.DeliveryID]bool{}, false
	for i, a := range all {
		w.reach(a, sent.Outcomes[i])
		r := drover.BatchReceipt{DeliveryID: a.d.ID, Receipt: "ok", Error: w.answerOf(a)}
		switch {
		case r.Error == nil:
			given[a.d.ID] = true
		case r.Error.Code == drover.CodeTimeout && w.chance(0.5):
			w.saw("Delivery08 a receipt was missing")
			continue
		case r.Error.Code == drover.CodeTimeout:
			none = true
		default:
			r.Receipt = ""
			if w.chance(0.3) {
				r.Error.Code = "" // any error is one
			}
		}
		receipts = append(receipts, r)
	}
	switch {
	case none && w.chance(0.5):
		return nil, nil
	case none:
		w.saw("Delivery08 the answer to a batch had no receipts")
		return &nats.Msg{Data: []byte([]string{`ok`, `{}`, `[]`, `null`, ``}[w.rng.IntN(5)])}, nil
	}
	w.sawBatch(all, given)
	return w.receipts(receipts), given
}

// receipts answers a batch, in some order, with one that nobody asked for.
func (w *World) receipts(list []drover.BatchReceipt) *nats.Msg {
	w.rng.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
	list = append(list, drover.BatchReceipt{DeliveryID: "other:terminal:0", Receipt: "ok"})
	data, _ := json.Marshal(drover.BatchReceipts{Receipts: list}) // its fields are plain
	return &nats.Msg{Data: data}
}

func (w *World) sawBatch(all []*attempt, given map[drover.DeliveryID]bool) {
	if len(all) > 1 {
		w.saw("Delivery08 several went in one request")
	}
	if len(given) > 0 && len(given) < len(all) {
		w.saw("Delivery08 some of a batch failed")
	}
	for _, a := range all {
		if given[a.d.ID] && slices.Contains(w.told.failed, a.d.Token) {
			w.saw("Delivery08 what failed of a batch came again")
		}
		if !given[a.d.ID] && len(all) > 1 {
			w.told.failed = append(w.told.failed, a.d.Token)
		}
	}
}
