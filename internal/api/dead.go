package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/rawjson"
	"github.com/droverhq/drover/subjects"
)

// firstLook is how many sequences of the stream a list goes through at first,
// from its end. Each further look takes four times as many.
const firstLook = 256

// quietTime is how long a list waits for a letter that was counted.
const quietTime = 2 * time.Second

// listDead goes through the letters from the end of their stream, until it has
// enough of them.
func (s *Service) listDead(ctx context.Context, req *drover.DeadListRequest) (any, error) {
	limit := cmp.Or(req.Limit, defaultList)
	if limit < 0 || limit > maxList {
		return nil, drover.Errorf(drover.CodeInvalidRequest, "limit %d must be from 1 to %d", req.Limit, maxList)
	}
	stream, err := s.js.Stream(ctx, s.Names.DeadLetters())
	if err != nil {
		return nil, err
	}
	state := stream.CachedInfo().State
	reply := drover.DeadList{Letters: []drover.DeadLetter{}}
	if state.Msgs == 0 {
		return reply, nil
	}
	look := uint64(max(firstLook, limit))
	for end := state.LastSeq; end >= state.FirstSeq && len(reply.Letters) <= limit; look *= 4 {
		begin := max(state.FirstSeq, end-min(end, look)+1)
		found, err := s.letters(ctx, stream, begin, end, req)
		if err != nil {
			return nil, err
		}
		reply.Letters = append(reply.Letters, found...)
		end = begin - 1
	}
	reply.More = len(reply.Letters) > limit
	reply.Letters = reply.Letters[:min(len(reply.Letters), limit)]
	return reply, nil
}

// letters gives the letters in a part of the stream that a request asks for,
// newest first and without their payloads.
func (s *Service) letters(ctx context.Context, stream jetstream.Stream, begin, end uint64, req *drover.DeadListRequest) ([]drover.DeadLetter, error) {
	c, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: begin,
	})
	if err != nil {
		return nil, err
	}
	defer s.forget(ctx, stream, c)
	var found []drover.DeadLetter
	left := c.CachedInfo().NumPending
	if left == 0 {
		return nil, nil
	}
	it, err := c.Messages(jetstream.PullMaxMessages(firstLook))
	if err != nil {
		return nil, err
	}
	defer it.Stop()
	for ; left > 0; left-- {
		m, err := next(ctx, it)
		if m == nil {
			if err != nil {
				return nil, err
			}
			break // what was counted has been removed meanwhile
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, err
		}
		if meta.Sequence.Stream > end {
			break
		}
		letter, err := readLetter(m.Data(), meta.Timestamp)
		if err != nil {
			s.Logger.Warn().Err(err).Str("subject", m.Subject()).Msg("a dead letter cannot be read")
		} else if asked(&letter, req) {
			letter.Payload = nil
			found = append(found, letter)
		}
		if meta.NumPending == 0 || meta.Sequence.Stream == end {
			break
		}
	}
	slices.Reverse(found)
	return found, nil
}

// next gives the next message, or none where none comes for a while.
func next(ctx context.Context, it jetstream.MessagesContext) (jetstream.Msg, error) {
	waiting, cancel := context.WithTimeout(ctx, quietTime)
	defer cancel()
	m, err := it.Next(jetstream.NextContext(waiting))
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		return nil, nil
	}
	return m, err
}

// forget removes a consumer, which the server would do by itself, only later.
func (s *Service) forget(ctx context.Context, stream jetstream.Stream, c jetstream.Consumer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = stream.DeleteConsumer(ctx, c.CachedInfo().Name)
}

func asked(l *drover.DeadLetter, req *drover.DeadListRequest) bool {
	verb := req.Verb == "" || l.Verb == req.Verb || req.Verb == "drive" && l.Verb == drover.LetterDrive // as people would say it
	return (req.RunID == "" || l.RunID == req.RunID) && verb &&
		(req.Code == "" || errors.Is(l.Error, req.Code))
}

// readLetter reads what the stream has. A letter without an error is none.
func readLetter(data []byte, at time.Time) (drover.DeadLetter, error) {
	var l drover.DeadLetter
	if err := json.Unmarshal(data, &l); err != nil {
		return l, err
	}
	if l.Error == nil {
		return l, errors.New("it has no error")
	}
	at = at.UTC()
	l.Bytes, l.At = len(l.Payload), &at
	return l, nil
}

func (s *Service) showDead(ctx context.Context, req *drover.DeadRequest) (any, error) {
	letter, _, err := s.letter(ctx, req.Sequence)
	if err != nil {
		return nil, err
	}
	return letter, nil
}

// letter reads one letter from the leader of its stream: what another worker
// has just requeued must not be found once more. It gives the sequence in that
// stream as well.
func (s *Service) letter(ctx context.Context, sequence uint64) (drover.DeadLetter, uint64, error) {
	if sequence == 0 {
		return drover.DeadLetter{}, 0, drover.Errorf(drover.CodeInvalidRequest, "which dead letter? give its sequence, as dead.list shows it")
	}
	stored, err := s.stored(ctx, s.Names.DeadLetters(), lastOn{s.Names.DeadOf(sequence)})
	switch {
	case errors.Is(err, drover.CodeNotFound):
		return drover.DeadLetter{}, 0, drover.Errorf(drover.CodeNotFound,
			"there is no dead letter %d: it was requeued, or dropped as the oldest when there were too many", sequence)
	case err != nil:
		return drover.DeadLetter{}, 0, err
	}
	letter, err := readLetter(stored.Data, stored.Time)
	if err != nil {
		return letter, 0, drover.Errorf(drover.CodeInternal, "dead letter %d cannot be read: %v", sequence, err)
	}
	return letter, stored.Sequence, nil
}

// requeue publishes the command of a letter, and removes the letter once that
// is durable. The message id keeps a repeat, after an answer that was lost or
// from somebody else at the same time, from being a second command. The server
// forgets it after a while; a repeat is harmless then too, as every command is
// when it comes twice, but for a delivery without an id, which is given one.
func (s *Service) requeue(ctx context.Context, req *drover.DeadRequest) (any, error) {
	letter, at, err := s.letter(ctx, req.Sequence)
	if err != nil {
		return nil, err
	}
	if err := again(&letter); err != nil {
		return nil, err
	}
	if err := s.orphan(ctx, &letter); err != nil {
		return nil, err
	}
	m := nats.NewMsg(s.Names.In(drover.RunID(letter.RunID), drover.Verb(letter.Verb)))
	id := "requeue:" + strconv.FormatUint(letter.Sequence, 10)
	m.Data = letter.Payload
	if drover.Verb(letter.Verb) == drover.VerbDeliver {
		if m.Data, err = named(letter.Payload, id); err != nil {
			return nil, err
		}
	}
	m.Header.Set(subjects.HeaderMessageID, id)
	ack, err := s.store(ctx, m)
	if err != nil {
		return nil, err
	}
	if err := s.remove(ctx, letter.Sequence, at); err != nil {
		return nil, drover.Errorf(drover.CodeUnavailable,
			"the command of dead letter %d is in the log again, but the letter could not be removed: %v: ask again, a repeat is harmless", letter.Sequence, err)
	}
	return drover.RequeueReply{RunID: letter.RunID, Verb: letter.Verb, Sequence: ack.Sequence}, nil
}

// named gives a delivery an id, if it has none.
func named(payload []byte, id string) ([]byte, error) {
	var d drover.DeliverRequest
	if err := json.Unmarshal(payload, &d); err != nil || d.ID != "" {
		return payload, err
	}
	d.ID = id
	return rawjson.Encode(d)
}

// remove removes a letter. One that somebody else has removed is no error.
func (s *Service) remove(ctx context.Context, sequence, at uint64) error {
	stream, err := s.js.Stream(ctx, s.Names.DeadLetters())
	if err != nil {
		return err
	}
	if err = stream.DeleteMsg(ctx, at); err == nil {
		return nil
	}
	if _, _, gone := s.letter(ctx, sequence); errors.Is(gone, drover.CodeNotFound) {
		return nil
	}
	return err
}

// again refuses a letter whose command would be refused again, whatever its run
// is like by now, or that has none.
func again(l *drover.DeadLetter) error {
	if l.Verb == drover.LetterDrive {
		return drover.Errorf(drover.CodeConflict, "dead letter %d is a drive of run %s, which has failed, and no command: mend its program, and start another run", l.Sequence, l.RunID)
	}
	_, _, refused := machine.DecodeCommand(l.Sequence, *l.At, l.RunID, l.Verb, l.Payload, "")
	if refused == nil {
		return nil
	}
	e := *refused
	e.Message = fmt.Sprintf("dead letter %d cannot be requeued, it would come back: %s", l.Sequence, e.Message)
	return &e
}

// orphan refuses the start of a child for which nobody waits any more: its parent
// was told that it could not be started, and is over.
func (s *Service) orphan(ctx context.Context, l *drover.DeadLetter) error {
	var start drover.StartRequest
	if drover.Verb(l.Verb) != drover.VerbStart || json.Unmarshal(l.Payload, &start) != nil || start.Parent == nil || start.Parent.Detached {
		return nil
	}
	parent := start.Parent.Call.Run
	state, err := s.stateOf(ctx, parent)
	if err != nil || state != nil && !state.Terminal() {
		return err
	}
	return drover.Errorf(drover.CodeConflict, "dead letter %d is the start of a child of run %s, which is over: start that one again under another id", l.Sequence, parent)
}

// message is what a stream has stored.
type message struct {
	Subject  string    `json:"subject"`
	Sequence uint64    `json:"seq"`
	Data     []byte    `json:"data"`
	Time     time.Time `json:"time"`
}

// lastOn asks for the last message on a subject, which may have wildcards.
type lastOn struct {
	Subject string `json:"last_by_subj"`
}

// nextOn asks for the first message on a subject, which may have wildcards,
// from a sequence on.
type nextOn struct {
	Sequence uint64 `json:"seq"`
	Subject  string `json:"next_by_subj"`
}

// stored asks the leader of a stream for a message. The error is
// drover.CodeNotFound where there is none.
func (s *Service) stored(ctx context.Context, stream string, ask any) (message, error) {
	data, err := json.Marshal(ask)
	if err != nil {
		return message{}, err
	}
	m, err := s.Conn.RequestWithContext(ctx, subjects.ReadLatest(stream), data)
	if err != nil {
		return message{}, err
	}
	var a struct {
		Message *message            `json:"message"`
		Error   *jetstream.APIError `json:"error"`
	}
	switch err := json.Unmarshal(m.Data, &a); {
	case err != nil:
		return message{}, err
	case a.Error != nil && a.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return message{}, drover.CodeNotFound
	case a.Error != nil:
		return message{}, a.Error
	case a.Message == nil:
		return message{}, errors.New("the server answered a read with nothing")
	}
	return *a.Message, nil
}
