package client

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// verbJournal is a request whose answer has several messages.
const verbJournal = "journal"

// Journal gives the journal of a program from an entry on; 0 and 1: all of it. Its
// error has the code invalid_request where the run is no program, or its journal
// is not that long.
func (c *Client) Journal(ctx context.Context, run drover.RunID, from int) (drover.JournalReply, error) {
	from = max(from, 1)
	data, err := encode(verbJournal, drover.JournalRequest{RunID: run, From: from})
	if err != nil {
		return drover.JournalReply{}, err
	}
	var whole drover.JournalReply
	err = c.repeat(ctx, verbJournal, answerTime(verbJournal), func(ctx context.Context) (err error) {
		whole, err = c.journal(ctx, data, from)
		return err
	})
	return whole, err
}

// journal is one try. Of a journal that loses a part on its way nothing counts.
func (c *Client) journal(ctx context.Context, data []byte, from int) (whole drover.JournalReply, err error) {
	inbox := c.nc.NewInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return whole, c.unanswered(verbJournal, len(data), err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := c.nc.PublishRequest(c.names.API(verbJournal), inbox, data); err != nil {
		return whole, c.unanswered(verbJournal, len(data), err)
	}
	for first := true; ; first = false {
		m, err := c.part(ctx, sub, len(data))
		if err != nil {
			return whole, err
		}
		var part drover.JournalReply
		if err := read(verbJournal, m, &part); err != nil {
			return whole, err
		}
		if first {
			whole = part
		} else {
			whole.Journal = append(whole.Journal, part.Journal...)
		}
		if m.Header.Get(subjects.HeaderMore) != "" {
			continue
		}
		if len(whole.Journal) != whole.Entries-from+1 {
			return whole, drover.Errorf(drover.CodeUnavailable, "of the %d entries of the journal of run %s from %d on only %d came", whole.Entries, whole.RunID, from, len(whole.Journal))
		}
		return whole, nil
	}
}

// part is the next part of an answer.
func (c *Client) part(ctx context.Context, sub *nats.Subscription, size int) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime(verbJournal))
	defer cancel()
	m, err := sub.NextMsgWithContext(ctx)
	switch {
	case err != nil:
		return nil, c.unanswered(verbJournal, size, err)
	case len(m.Data) == 0 && m.Header.Get(subjects.HeaderStatus) == statusNobody:
		return nil, c.unanswered(verbJournal, size, nats.ErrNoResponders)
	}
	return m, answered(m)
}
