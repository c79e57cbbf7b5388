package machine

import (
	"encoding/json"
	"strings"

	"github.com/droverhq/drover"
)

// The commands of hooks. Whoever sends them has read the key of the token.

func (w *world) deliverHook(token, payload, id string) Step {
	w.t.Helper()
	return w.hookFrom(drover.DeliverRequest{Hook: token, Claim: 7, Payload: json.RawMessage(payload), ID: id})
}

func (w *world) hookFrom(m drover.DeliverRequest) Step {
	w.t.Helper()
	return w.send(&Command{Verb: drover.VerbDeliver, Deliver: &m})
}

func (w *world) says(node, token string, m drover.ClaimedMessage) Step {
	w.t.Helper()
	m.Hook, m.Claim = token, string(w.run)+"/"+node
	if m.Proof == "" {
		m.Proof = Token("s3cret", proofText(m.Claim, m.Hook))
	}
	return w.send(&Command{Verb: drover.VerbClaimed, Claimed: &m})
}

func (w *world) owned(node, token string) Step {
	w.t.Helper()
	return w.says(node, token, drover.ClaimedMessage{Revision: 7})
}

func (w *world) taken(node, token string, lost bool) Step {
	w.t.Helper()
	return w.says(node, token, drover.ClaimedMessage{Owner: "other", Since: "2029-12-31T23:00:00Z", Lost: lost})
}

// wantNode holds that a node failed with a code, for a run that is meant.
func (w *world) wantNode(id drover.NodeID, code drover.Code, run drover.RunID, words ...string) {
	w.t.Helper()
	n := w.node(id)
	if n.Status != drover.NodeFailed || n.Error.Code != code || n.Error.Run != run {
		w.t.Fatalf("node %s is %s (%+v), want it failed with %s for run %q", id, n.Status, n.Error, code, run)
	}
	wantWords(w.t, n.Error.Message, words...)
}

func (w *world) wantOutput(id drover.NodeID, want string) {
	w.t.Helper()
	if n := w.node(id); n.Status != drover.NodeDone || string(orNull(n.Output)) != want {
		w.t.Fatalf("node %s is %s with output %s (%v), want %s", id, n.Status, n.Output, n.Error, want)
	}
}

// effect gives the one effect of a kind of the last step.
func (w *world) effect(kind EffectKind) Effect {
	w.t.Helper()
	for _, e := range w.last.Effects {
		if e.Kind == kind {
			return e
		}
	}
	w.t.Fatalf("no %s in %s", kind, showEffects(w.last.Effects))
	return Effect{}
}

func (w *world) outcome() *drover.Outcome { return w.effect(EffectDone).Outcome }

// token is a token, or with @ that of a node.
func (w *world) token(text string) string {
	if node, ok := strings.CutPrefix(text, "@"); ok {
		return w.node(drover.NodeID(node)).Hook
	}
	return text
}
