package dispatcher

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/hook"
	"github.com/droverhq/drover/internal/publish"
	"github.com/droverhq/drover/internal/replies"
	"github.com/droverhq/drover/subjects"
)

// answerTime is how long the owner of a run may take to answer a command.
const answerTime = 5 * time.Second

// runLogs is the logs of all runs, for those who wait for what they send.
type runLogs struct {
	d       *Dispatcher
	answers *replies.Replies
}

// Log is the logs of the runs, for others who wait for what they send. It needs
// Run, and ends with it.
func (d *Dispatcher) Log() hook.Log { return d.logs }

// Send implements hook.Log.
func (l *runLogs) Send(ctx context.Context, run drover.RunID, verb drover.Verb, body any) error {
	msg, err := l.d.command(run, verb, body)
	if err != nil {
		return err
	}
	return l.store(ctx, msg)
}

// store makes a command durable.
func (l *runLogs) store(ctx context.Context, msg *nats.Msg) error {
	stored := make(chan error, 1)
	l.d.opts.Publisher.Publish(msg, func(_ publish.Ack, err error) { stored <- err })
	select {
	case err := <-stored:
		return err
	case <-ctx.Done():
		return unavailable(context.Cause(ctx))
	}
}

// Ask implements hook.Log.
func (l *runLogs) Ask(ctx context.Context, run drover.RunID, verb drover.Verb, body, reply any) error {
	msg, err := l.d.command(run, verb, body)
	if err != nil {
		return err
	}
	inbox, answer, forget := l.answers.Expect()
	defer forget()
	msg.Header = nats.Header{subjects.HeaderReply: {inbox}}
	if err := l.store(ctx, msg); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	select {
	case m := <-answer:
		if e := drover.ErrorOf(m.Header.Get(subjects.HeaderCode), m.Data); e != nil {
			return e
		}
		return json.Unmarshal(m.Data, reply)
	case <-ctx.Done():
		return drover.Errorf(drover.CodeUnavailable, "the owner of run %s did not answer the %s in time", run, verb)
	}
}
