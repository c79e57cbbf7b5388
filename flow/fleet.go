package flow

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/rawjson"
	"github.com/droverhq/drover/internal/replies"
	"github.com/droverhq/drover/subjects"
)

// How long one try to reach the owner of a run may take, and the pause after one
// that failed at once.
const (
	recordTry  = 5 * time.Second
	journalTry = 10 * time.Second
	tryAgain   = 200 * time.Millisecond
)

// fleet is the transport of a server.
type fleet struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	names   subjects.Names
	replies *replies.Replies
}

// Record publishes a record to the log of the run, and waits for what the fold
// answers. It does so until there is an answer: repeats are harmless.
func (f *fleet) Record(ctx context.Context, run drover.RunID, m *drover.RecordRequest) (*drover.RecordReply, error) {
	data, err := rawjson.Encode(m)
	if err != nil {
		return nil, permanent(drover.CodeInvalidRequest, "a record of run %s is no JSON: %v", run, err)
	}
	for {
		reply, err := f.record(ctx, run, data)
		if err == nil || drover.CodeOf(err, drover.CodeUnavailable) != drover.CodeUnavailable {
			return reply, err
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
}

// record is one try.
func (f *fleet) record(ctx context.Context, run drover.RunID, data []byte) (*drover.RecordReply, error) {
	ctx, cancel := context.WithTimeout(ctx, recordTry)
	defer cancel()
	inbox, answer, forget := f.replies.Expect()
	defer forget()
	m := &nats.Msg{Subject: f.names.In(run, drover.VerbRecord), Header: nats.Header{}, Data: data}
	m.Header.Set(subjects.HeaderReply, inbox)
	if _, err := f.js.PublishMsg(ctx, m); errors.Is(err, nats.ErrMaxPayload) {
		return nil, permanent(drover.CodeTooLarge, "a record of run %s has %d bytes, more than a message may have: record references", run, len(data))
	} else if err != nil {
		return nil, err
	}
	select {
	case got := <-answer:
		if err := drover.ErrorOf(got.Header.Get(subjects.HeaderCode), got.Data); err != nil {
			return nil, err
		}
		reply := &drover.RecordReply{}
		return reply, json.Unmarshal(got.Data, reply)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Journal asks for the journal of a run, until there is an answer.
func (f *fleet) Journal(ctx context.Context, run drover.RunID, from int) (*drover.JournalReply, error) {
	data, err := rawjson.Encode(drover.JournalRequest{RunID: run, From: from})
	if err != nil {
		return nil, err
	}
	for {
		reply, err := f.journal(ctx, data)
		if err == nil {
			err = complete(reply, max(from, 1))
		}
		if err == nil || drover.CodeOf(err, drover.CodeUnavailable) != drover.CodeUnavailable {
			return reply, err
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
}

// journal is one try. The answer comes in parts.
func (f *fleet) journal(ctx context.Context, data []byte) (*drover.JournalReply, error) {
	ctx, cancel := context.WithTimeout(ctx, journalTry)
	defer cancel()
	inbox := f.nc.NewInbox()
	sub, err := f.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := f.nc.PublishRequest(f.names.API("journal"), inbox, data); err != nil {
		return nil, err
	}
	var whole *drover.JournalReply
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return nil, err
		}
		if err := drover.ErrorOf(m.Header.Get(subjects.HeaderCode), m.Data); err != nil {
			return nil, err
		}
		var part drover.JournalReply
		if err := json.Unmarshal(m.Data, &part); err != nil {
			return nil, err
		}
		if whole == nil {
			whole = &part
		} else {
			whole.Journal = append(whole.Journal, part.Journal...)
		}
		if m.Header.Get(subjects.HeaderMore) == "" {
			return whole, nil
		}
	}
}

// complete refuses a journal that lacks a part: it may get lost.
func complete(j *drover.JournalReply, from int) error {
	if want := max(j.Entries-from+1, 0); len(j.Journal) != want {
		return drover.Errorf(drover.CodeUnavailable, "%d of %d entries of the journal of run %s came, from %d on", len(j.Journal), want, j.RunID, from)
	}
	return nil
}

func pause(ctx context.Context) error {
	select {
	case <-time.After(tryAgain):
		return context.Cause(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
