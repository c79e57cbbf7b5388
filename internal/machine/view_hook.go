package machine

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/droverhq/drover"
)

// Held says of a token that a run claims or holds how many deliveries to it are
// unread, and when the wait that would read the next one ends by itself; 0 is
// never, also where no wait is there. It is false where the run does not have
// the token, or not any more.
func Held(p *Plan, s *State, token string) (unread int, until Millis, ok bool) {
	at := s.hook(token)
	if at < 0 || s.Hooks[at].Mark == HookHanded {
		return 0, 0, false
	}
	p = s.grown(p)
	for i := range s.Active {
		a := &s.Active[i]
		if n := p.nodes[a.Node]; a.Kind == ActiveWait && n.hooked() && s.hookOf(n.target) == at && a.Due > 0 && (until == 0 || a.Due < until) {
			until = a.Due
		}
	}
	return s.unreadOf(token), until, true
}

// wait says what a wait is waiting for.
func (g *group) wait(r *drover.Reason) {
	r.Waiting = "delivery"
	if !g.n.hooked() {
		r.On = g.n.step.Wait.Name
		r.Text = fmt.Sprintf("%s waits for a delivery named %q", g.who(), r.On)
		if r.Until != "" {
			r.Text += ", at the latest until " + r.Until
		}
		return
	}
	at := g.s.hookOf(g.n.target)
	if at < 0 {
		return // no wait is without its hook
	}
	h := &g.s.Hooks[at]
	r.Waiting, r.On, r.Ask = "hook", h.Token, g.asks()
	r.Text = fmt.Sprintf("%s waits for a delivery to hook %q since %s", g.who(), cut(h.Token, shownToken), r.Since)
	if h.Mark == HookClaiming {
		r.Text = fmt.Sprintf("%s waits for token %q to be claimed since %s", g.who(), cut(h.Token, shownToken), r.Since)
	}
	if r.Until != "" {
		r.Text += ", at the latest until " + r.Until
	}
	if n := g.s.Nodes[g.n.at].Reading; n != nil && len(n.Got) > 0 {
		r.Text += fmt.Sprintf("; it has read %d", len(n.Got))
	}
	if n := g.s.unreadOf(h.Token); n > 0 {
		r.Text += fmt.Sprintf("; %d unread", n)
	}
}

// asks is what a person is asked by an approval; nil for any other wait. Where what
// it is made of is not in the record, it is as the definition has it.
func (g *group) asks() json.RawMessage {
	if g.n.hook == nil || !g.n.hook.approve { // one that reads the hook of another node has none
		return nil
	}
	g.s.derive(g.p)
	f := newFold(g.p, g.s, nothing)
	f.frozen = true
	var said struct {
		Approve json.RawMessage `json:"approve"`
	}
	if c, err := f.said(g.n.at); err != nil || json.Unmarshal(c.Metadata, &said) != nil {
		return g.n.step.Wait.Approve
	}
	return said.Approve
}

// nothing holds no values.
func nothing(string) (json.RawMessage, bool) { return nil, false }

// UnreadOf counts the deliveries that no wait has read, by the name of the wait or
// the token of the hook, of the first so many of those.
func UnreadOf(s *State, most int) map[string]int {
	var of map[string]int
	for i := range s.Unread {
		u := &s.Unread[i]
		to := cmp.Or(u.Name, u.Hook)
		if of == nil {
			of = map[string]int{}
		}
		if of[to] > 0 || len(of) < most {
			of[to]++
		}
	}
	return of
}
