package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

const (
	receiptTime = 10 * time.Second       // for the receipt of a subscriber
	maxReceipt  = 256                    // bytes of it
	storePause  = 200 * time.Millisecond // between attempts to store what a built-in function has to say
)

// delivery is a queued delivery of an outcome.
type delivery struct {
	run     drover.RunID
	id      drover.DeliveryID
	token   string
	attempt int
	notify  drover.Notify
}

// parseDelivery reads the headers of a queued delivery. Anyone may have
// published it.
func parseDelivery(m *nats.Msg) (delivery, error) {
	v := delivery{
		id:    drover.DeliveryID(m.Header.Get(subjects.HeaderDelivery)),
		token: m.Header.Get(subjects.HeaderToken),
	}
	var err error
	if v.run, err = drover.ParseRunID(m.Header.Get(subjects.HeaderRun)); err != nil {
		return v, err
	}
	if v.attempt, err = strconv.Atoi(m.Header.Get(subjects.HeaderAttempt)); err != nil || v.attempt < 1 {
		return v, drover.Errorf(drover.CodeInvalidRequest, "header %s is no number from 1", subjects.HeaderAttempt)
	}
	if err := json.Unmarshal([]byte(m.Header.Get(subjects.HeaderNotify)), &v.notify); err != nil || v.notify.Subject == "" {
		return v, drover.Errorf(drover.CodeInvalidRequest, "header %s names no subject", subjects.HeaderNotify)
	}
	if v.id == "" || v.token == "" {
		return v, drover.Errorf(drover.CodeInvalidRequest, "header %s or %s is empty", subjects.HeaderDelivery, subjects.HeaderToken)
	}
	return v, nil
}

// notify makes one attempt to deliver an outcome, and tells the run how it
// went. nil takes the message off the queue; an error gives it back.
func (d *Dispatcher) notify(ctx context.Context, m *nats.Msg) error {
	v, err := parseDelivery(m)
	if err != nil {
		d.quiet.Warn().Err(err).Str("subject", m.Subject).Msg("a queued message is no delivery, and was thrown away")
		return nil
	}
	heard := drover.HeardMessage{DeliveryID: v.id, Token: v.token, Attempt: v.attempt}
	heard.Receipt, heard.Error = d.attempt(ctx, v, m.Data)
	if ctx.Err() != nil {
		return context.Cause(ctx) // no failure of the subscriber: the worker ends
	}
	msg, err := d.command(v.run, drover.VerbHeard, heard)
	if err != nil {
		return err
	}
	return d.store(ctx, msg)
}

// attempt asks the subscriber for its receipt. Any reply is one, but for one
// that says that it is an error. A panic is a failed attempt.
func (d *Dispatcher) attempt(ctx context.Context, v delivery, outcome []byte) (receipt string, failed *drover.Error) {
	defer func() {
		if value := recover(); value != nil {
			failed = drover.Errorf(drover.CodePanic, "the delivery %s panicked: %v", v.id, value)
		}
	}()
	subject := v.notify.Subject
	if err := d.opts.Names.Foreign(subject); err != nil {
		return "", drover.AsError(err, drover.CodeForbidden)
	}
	ctx, cancel := context.WithTimeout(ctx, receiptTime)
	defer cancel()
	reply, err := d.opts.Conn.RequestMsgWithContext(ctx, &nats.Msg{
		Subject: subject,
		Data:    outcome,
		Header:  nats.Header{subjects.HeaderDelivery: {string(v.id)}},
	})
	if err != nil {
		return "", drover.AsError(d.requestError(subject, len(outcome), err), drover.CodeUnavailable)
	}
	if err := replyError(subject, reply); err != nil {
		return "", drover.AsError(err, drover.CodeFailed)
	}
	return cut(string(reply.Data), maxReceipt), nil
}

// store stores a message, and tries until ctx ends: what was done must not be
// done again because it could not be told.
func (d *Dispatcher) store(ctx context.Context, msg *nats.Msg) error {
	for {
		stored := make(chan error, 1)
		d.publish(msg, func(err error) { stored <- err })
		err := <-stored
		if err == nil {
			return nil
		}
		if !errors.Is(err, drover.CodeUnavailable) {
			return err
		}
		pause := time.NewTimer(storePause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return errors.Join(context.Cause(ctx), err)
		case <-pause.C:
		}
	}
}
