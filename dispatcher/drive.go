package dispatcher

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/rawjson"
	"github.com/droverhq/drover/subjects"
)

// keptTime is how long a process that has the body of a run in memory may take to
// say that it drives it. Where nobody is there the server says so at once, so this
// is for one that hangs: and for a busy machine, as one that is too late drives
// beside the one that the queue asks.
const keptTime = time.Second

// drive asks for a drive of a program: the process that has its body in memory,
// else any by the queue.
func (d *Dispatcher) drive(e *machine.Effect, in input, done func(error)) {
	switch {
	case e.Again && e.Inbox == "":
		d.lost.push(func() { d.driveAgain(e, in, done) })
	case e.Inbox == "" || d.opts.Names.Foreign(e.Inbox) != nil || !d.mayAsk(&d.asking):
		d.queueDrive(e, in, done)
	default:
		go func() {
			defer d.leave(&d.asking)
			if !d.kept(e) {
				d.queue.push(func() { d.queueDrive(e, in, done) })
				return
			}
			done(nil)
		}()
	}
}

// driveAgain queues a drive that was asked for before, unless the queue has it: a run
// that nobody serves would fill it.
func (d *Dispatcher) driveAgain(e *machine.Effect, in input, done func(error)) {
	if there, err := d.isQueued(e.Call); there || err != nil {
		done(err)
		return
	}
	d.queue.push(func() { d.queueDrive(e, in, done) })
}

// maxAsking is how many processes are asked at a time whether they have a body in
// memory; and how many are looked for. Where many more runs wake at once, most
// bodies are in nobody's.
const maxAsking = 1024

// mayAsk takes a place among those who ask, which leave gives back. It is false
// where there is none, or when it is too late.
func (d *Dispatcher) mayAsk(places *atomic.Int64) bool { return d.place(places, maxAsking) }

// place takes one of so many places.
func (d *Dispatcher) place(places *atomic.Int64, most int64) bool {
	if places.Add(1) <= most && d.begin() {
		return true
	}
	places.Add(-1)
	return false
}

// leave gives a place back.
func (d *Dispatcher) leave(places *atomic.Int64) {
	places.Add(-1)
	d.inflight.Done()
}

// kept asks the process that has the body in memory. Nobody may be there.
func (d *Dispatcher) kept(e *machine.Effect) bool {
	data, err := rawjson.Encode(e.Drive)
	if err != nil || int64(len(data)) > d.opts.Conn.MaxPayload() {
		return false
	}
	ctx, cancel := context.WithTimeout(d.ends, keptTime)
	defer cancel()
	m, err := d.opts.Conn.RequestWithContext(ctx, e.Inbox, data)
	if err != nil {
		return false
	}
	return taken(m)
}

func taken(m *nats.Msg) bool {
	var reply struct {
		Taken bool `json:"taken"`
	}
	return json.Unmarshal(m.Data, &reply) == nil && reply.Taken
}

// queueDrive queues a drive. What does not fit is read by whoever takes it.
func (d *Dispatcher) queueDrive(e *machine.Effect, in input, done func(error)) {
	req := *e.Drive
	req.Token = ""    // it is in the header
	if req.From > 0 { // that was for a process that has the others, and may drive by now
		req.Journal, req.From, req.Partial = nil, 0, true
	}
	if e.Value.Key != "" {
		req.Partial = true
	} else {
		req.Input = orNull(in.json)
	}
	data, err := rawjson.Encode(&req)
	if err != nil {
		done(err)
		return
	}
	msg := d.callMessage(e.Call, data)
	// A copy would be another drive of the same number, with an old journal.
	msg.Header.Set(subjects.HeaderMessageID, subjects.MessageID(e.Call.ID.String(), req.Started))
	d.orElse(msg, done, func() {
		req.Input, req.Journal, req.Partial = nil, nil, true
		small, err := rawjson.Encode(&req)
		if err != nil {
			done(err)
			return
		}
		d.publish(&nats.Msg{Subject: msg.Subject, Header: msg.Header, Data: small}, done)
	})
}

// nudge tells the process that drives a program that its journal has grown.
func (d *Dispatcher) nudge(e *machine.Effect) {
	data, err := json.Marshal(struct {
		RunID   drover.RunID `json:"run_id"`
		Entries int          `json:"entries"`
	}{e.Run, e.Entries})
	if err == nil {
		err = d.opts.Conn.Publish(d.opts.Names.Nudge(e.Inbox), data)
	}
	if err != nil {
		d.quiet.Debug().Err(err).Str("run", string(e.Run)).Msg("the process that drives a program was not told of news; it asks by itself")
	}
}
