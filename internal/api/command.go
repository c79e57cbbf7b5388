package api

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/rawjson"
	"github.com/droverhq/drover/subjects"
)

func (s *Service) stop(ctx context.Context, req *drover.StopRequest) (any, error) {
	run := req.RunID
	req.RunID = ""
	var reply drover.StopReply
	return &reply, s.send(ctx, run, drover.VerbStop, req, &reply)
}

func (s *Service) deliver(ctx context.Context, req *drover.DeliverRequest) (any, error) {
	if req.Hook != "" || req.Claim != 0 || req.Respond != "" {
		return nil, drover.Errorf(drover.CodeInvalidRequest, "deliver is for waits by their name: ask hook.deliver for a hook")
	}
	run := req.RunID
	req.RunID = ""
	var reply drover.DeliverReply
	return &reply, s.send(ctx, run, drover.VerbDeliver, req, &reply)
}

func (s *Service) tick(ctx context.Context, req *drover.RunRequest) (any, error) {
	if _, err := drover.ParseRunID(string(req.RunID)); err != nil {
		return nil, err
	}
	if _, err := s.record(ctx, req.RunID); err != nil {
		return nil, err
	}
	m := nats.NewMsg(s.Names.In(req.RunID, drover.VerbTick))
	return drover.RunRequest{RunID: req.RunID}, s.publish(ctx, m)
}

// send publishes a command and waits for the answer of its fold.
func (s *Service) send(ctx context.Context, run drover.RunID, verb drover.Verb, req, reply any) error {
	if _, err := drover.ParseRunID(string(run)); err != nil {
		return err
	}
	data, err := rawjson.Encode(req)
	if err != nil {
		return drover.Errorf(drover.CodeInvalidRequest, "the request cannot be read: %v", err)
	}
	// What the fold would refuse whatever the run is like is refused here.
	if _, _, refused := machine.DecodeCommand(0, time.Now(), string(run), string(verb), data, ""); refused != nil {
		return refused
	}
	inbox, answer, forget := s.answers.Expect()
	defer forget()
	m := nats.NewMsg(s.Names.In(run, verb))
	m.Data = data
	m.Header.Set(subjects.HeaderReply, inbox)
	if err := s.publish(ctx, m); err != nil {
		return err
	}
	timer := time.NewTimer(s.AnswerTime)
	defer timer.Stop()
	select {
	case a := <-answer:
		return readAnswer(a, reply)
	case <-timer.C:
	case <-ctx.Done():
	}
	return drover.Errorf(drover.CodeUnavailable,
		"the %s of run %s is durable, but no worker has answered it yet: ask for the status of the run, or send the same request again", verb, run)
}

// publish makes a command durable.
func (s *Service) publish(ctx context.Context, m *nats.Msg) error {
	_, err := s.store(ctx, m)
	return err
}

// store makes a command durable, and says where it stands.
func (s *Service) store(ctx context.Context, m *nats.Msg) (*jetstream.PubAck, error) {
	ack, err := s.js.PublishMsg(ctx, m)
	switch {
	case err == nil:
		return ack, nil
	case errors.Is(err, nats.ErrMaxPayload):
		return nil, drover.Errorf(drover.CodeTooLarge,
			"the request has %d bytes, and the server takes %d: pass a reference in place of big values", len(m.Data), s.Conn.MaxPayload())
	default:
		return nil, drover.Errorf(drover.CodeUnavailable, "the request could not be stored: %v: send it again", err)
	}
}

func readAnswer(m *nats.Msg, reply any) error {
	if e := drover.ErrorOf(m.Header.Get(subjects.HeaderCode), m.Data); e != nil {
		return e
	}
	if err := json.Unmarshal(m.Data, reply); err != nil {
		return drover.Errorf(drover.CodeInternal, "the owner of the run cannot be understood: %v", err)
	}
	return nil
}
