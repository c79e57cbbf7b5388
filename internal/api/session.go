package api

import (
	"context"
	"errors"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/seal"
	"github.com/droverhq/drover/subjects"
)

// tell checks who is told the outcome of a run that is to be started, and has the
// session of whoever asks be one of them where the start wants that. Nothing in the
// request says which session that is.
func (s *Service) tell(ctx context.Context, run drover.RunID, req *drover.StartRequest) error {
	for i := range req.Notify {
		if n := &req.Notify[i]; n.Session != "" || n.Seal != "" {
			return drover.Errorf(drover.CodeForbidden,
				"notify %d names a session, and nobody may name one: use reply_to, which is the session of whoever asks", i)
		}
	}
	if err := s.Names.ForeignNotify(req.Notify); err != nil {
		return err
	}
	if req.ReplyTo == nil {
		return nil
	}
	if len(s.Secret) == 0 {
		return drover.Errorf(drover.CodeInternal, "worker %s has no secret to seal a session with: give the service Secret", s.Worker)
	}
	session, err := s.session(ctx)
	if err != nil {
		return err
	}
	req.Notify = append(req.Notify, drover.Notify{
		Session: session, Seal: seal.Seal(s.Secret, run, session),
		Template: req.ReplyTo.Template, Inline: req.ReplyTo.Inline,
	})
	req.ReplyTo = nil
	return nil
}

// session says whose session asks: that of the call on whose behalf a function
// asks, or of the user of another account.
func (s *Service) session(ctx context.Context) (string, error) {
	switch who := callerOf(ctx); {
	case who.call != "" || who.token != "":
		return s.sessionOfCall(ctx, who)
	case who.imported && who.account != "":
		return subjects.SessionOfUser(who.account, who.user), nil
	}
	return "", drover.Errorf(drover.CodeForbidden,
		"reply_to needs to know who asks, and the server does not say it of the workers' own account: ask from another account, which imports %s, "+
			"or on behalf of a call, with its headers %s and %s; or name a subject with notify",
		s.Names.API("start"), subjects.HeaderCall, subjects.HeaderToken)
}

// sessionOfCall gives the session of a call that is outstanding, as the record of
// its run says.
func (s *Service) sessionOfCall(ctx context.Context, who caller) (string, error) {
	call, err := drover.ParseCallID(who.call)
	if err != nil {
		return "", err
	}
	plan, state, err := s.load(ctx, call.Run)
	if err != nil && !errors.Is(err, drover.CodeNotFound) {
		return "", err
	}
	if err != nil || !state.Called(plan, call, who.token) {
		return "", drover.Errorf(drover.CodeForbidden,
			"reply_to: call %s is over, or the token in %s is not its own: a run can be started on behalf of a call while that runs", call, subjects.HeaderToken)
	}
	return subjects.SessionOfCall(call.Session()), nil
}
