package machine

import (
	"cmp"

	"github.com/droverhq/drover"
)

// responds answers whoever sent what a wait has read last, if someone waits for
// an answer.
func (f *fold) responds(i int) {
	n := f.p.nodes[i]
	f.begins(i)
	e, ok, err := f.response(i)
	if err == nil && ok {
		if bad := fit(e.Value.JSON, "answer", n); bad != nil {
			err = bad
		}
	}
	if err != nil {
		f.spoil(i, drover.NoItem, "the answer", err)
		return
	}
	if ok {
		f.effect(e)
	}
	f.finish(i, MarkDone, Value{}, nil)
}

// response is the effect that answers. It is false where nobody waits for it.
func (f *fold) response(i int) (Effect, bool, error) {
	n := f.p.nodes[i]
	r := f.s.Nodes[n.target].Reading
	if r == nil || r.Respond == "" {
		return Effect{}, false, nil
	}
	e := Effect{
		Owed: Owed{Kind: EffectRespond, Node: n.id}, Run: f.s.Run, Inbox: r.Respond,
		Status: cmp.Or(n.step.Respond.Status, 200),
	}
	if n.answer != nil {
		raw, err := f.formula(n.answer, n, drover.NoItem)
		if err != nil {
			return Effect{}, false, err
		}
		e.Value = Value{JSON: raw}
	}
	return e, true, nil
}
