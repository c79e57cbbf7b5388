package delivery

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
)

// attempt is one that is under way. Its verdicts are set by whoever takes it out
// of the inbox, or posts it, and are read by the loop when that is told.
type attempt struct {
	target   *target
	jobs     []*Job // several: a batch
	verdicts []verdict
	number   uint64 // of its inbox
	alarm    alarm
}

// verdict is how an attempt went for one job.
type verdict struct {
	receipt string
	err     *drover.Error
	unmade  bool
}

// absent reports that nobody was there, and that somebody may be there later.
func (v verdict) absent() bool { return v.unmade && v.err != nil && !v.err.Permanent }

// all gives every job the same verdict.
func (a *attempt) all(v verdict) {
	for i := range a.verdicts {
		a.verdicts[i] = v
	}
}

// begin sets off an attempt.
func (d *Deliverer) begin(t *target, jobs []*Job, now time.Time) *attempt {
	a := &attempt{target: t, jobs: jobs, verdicts: make([]verdict, len(jobs))}
	a.alarm.attempt = a
	t.flying++
	d.flying++
	if t.kind == "url" {
		d.posts++
		d.spawn(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, a.timeout())
			defer cancel()
			defer d.tell(event{ended: a})
			a.guard(func() { a.verdicts[0] = d.posted(ctx, a.jobs[0]) })
		})
		return a
	}
	d.alarms.set(&a.alarm, now.Add(a.timeout()))
	if !a.guard(func() { d.send(a) }) {
		d.tell(event{ended: a})
	}
	return a
}

func (d *Deliverer) posted(ctx context.Context, j *Job) verdict {
	receipt, unmade, err := d.post(ctx, j)
	return verdict{receipt: receipt, unmade: unmade, err: err}
}

// timeout is how long an attempt may take: as long as its most patient job.
func (a *attempt) timeout() time.Duration {
	var longest time.Duration
	for _, j := range a.jobs {
		longest = max(longest, cmp.Or(time.Duration(j.Notify.Timeout), drover.DefaultReceiptTime))
	}
	return longest
}

// guard reports whether f returned. Where it panicked the attempt has failed.
func (a *attempt) guard(f func()) (returned bool) {
	defer func() {
		if value := recover(); value != nil {
			a.all(verdict{err: drover.Errorf(drover.CodePanic, "the attempt to deliver %s panicked: %v", a.jobs[0].ID, value)})
		}
	}()
	f()
	return true
}

// send sends the message of an attempt, or tells why it could not.
func (d *Deliverer) send(a *attempt) {
	t := a.target
	err := t.wrong
	if err == nil && !d.opts.Conn.IsConnected() {
		err = drover.Errorf(drover.CodeUnavailable, "the worker has no connection to NATS just now")
	}
	if err == nil {
		var msg *nats.Msg
		if msg, err = Message(d.opts.Names, int(d.opts.Conn.MaxPayload()), a.jobs); err == nil {
			if err = d.sendError(a, msg, d.inbox.send(a, msg)); err == nil {
				return
			}
		}
	}
	if t.wrong != nil {
		wrong := *err
		wrong.Permanent, err = true, &wrong
	}
	a.all(verdict{err: err, unmade: true})
	d.tell(event{ended: a})
}

// sendError makes an error of what the connection says to a message that it did
// not send.
func (d *Deliverer) sendError(a *attempt, msg *nats.Msg, err error) *drover.Error {
	to := where(&a.jobs[0].Notify)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrMaxPayload):
		e := drover.Errorf(drover.CodeTooLarge,
			"the outcome for %s is %d bytes and does not fit in a message of the server, which takes %d with its headers: let the run give a reference to it, or raise the server's max_payload",
			to, len(msg.Data), d.opts.Conn.MaxPayload())
		e.Permanent = true
		return e
	}
	return drover.Errorf(drover.CodeUnavailable, "the outcome was not sent to %s: %v", to, err)
}

// answered takes the first answer to an attempt. It is called on the goroutine of
// the subscription.
func (d *Deliverer) answered(a *attempt, m *nats.Msg) {
	a.guard(func() { a.judge(m) })
	d.tell(event{ended: a})
}

// expire gives up on an attempt that has no answer, unless that is on its way to
// the loop.
func (d *Deliverer) expire(a *attempt, now time.Time) {
	if !d.inbox.drop(a) {
		return
	}
	a.late()
	d.finish(a, now)
}

// late gives every job the verdict that nobody answered.
func (a *attempt) late() {
	a.all(verdict{err: drover.Errorf(drover.CodeTimeout, "%s did not answer within %s", where(&a.jobs[0].Notify), a.timeout())})
}

// finish tells how an attempt went.
func (d *Deliverer) finish(a *attempt, now time.Time) {
	t := a.target
	d.alarms.cancel(&a.alarm)
	d.flying--
	t.flying--
	if t.kind == "url" {
		d.posts--
	}
	d.touch(t)
	if a == t.probe {
		d.probed(t, a.verdicts[0], now)
		return
	}
	var gone *Job
	var why *drover.Error
	for i, j := range a.jobs {
		d.release(t, j)
		d.made.note(j, a.verdicts[i])
		d.hear(j, a.verdicts[i])
		if a.verdicts[i].absent() {
			gone, why = j, a.verdicts[i].err
		}
	}
	if gone != nil && !d.draining {
		d.goAway(t, gone, why, now)
	}
}

// hear tells a run how an attempt went.
func (d *Deliverer) hear(j *Job, v verdict) { d.opts.Heard(j.Run, v.heard(j)) }

// heard is what the runs of an attempt hear of it.
func (a *attempt) heard() []drover.HeardMessage {
	var all []drover.HeardMessage
	for i, j := range a.jobs {
		all = append(all, a.verdicts[i].heard(j))
	}
	return all
}

func (v verdict) heard(j *Job) drover.HeardMessage {
	m := drover.HeardMessage{DeliveryID: j.ID, Token: j.Token, Attempt: j.Attempt}
	if v.err == nil {
		m.Receipt = cut(v.receipt, maxReceipt)
	} else {
		m.Error, m.Unmade = clip(v.err), v.unmade
	}
	return m
}

const (
	maxReceipt = 256     // bytes of a receipt
	maxNoted   = 1 << 10 // of the text of an error
	maxCode    = 64      // of its code
)

// clip gives an error without what a subscriber may have put into it that is
// neither its own nor small.
func clip(e *drover.Error) *drover.Error {
	return &drover.Error{
		Code: drover.Code(cut(string(e.Code), maxCode)), Message: cut(e.Message, maxNoted),
		Permanent: e.Permanent, RetryAfter: max(e.RetryAfter, 0),
	}
}

// cut gives at most n bytes of a text, and no half characters.
func cut(s string, n int) string {
	return strings.ToValidUTF8(s[:min(len(s), n)], "")
}

// where says who is told, in words.
func where(n *drover.Notify) string {
	switch {
	case n.Subject != "":
		return "subject " + strconv.Quote(n.Subject)
	case n.StreamSubject != "":
		return "stream subject " + strconv.Quote(n.StreamSubject)
	case n.Session != "":
		return "session " + n.Session
	}
	return n.Kind() + " " + n.To()
}
