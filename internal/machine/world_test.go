package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// world holds one run as a worker does: it commits, loads values on demand, and
// holds every step to what the package promises.
type world struct {
	t       testing.TB
	p       *Plan
	s       *State
	run     drover.RunID
	record  []byte // as committed last
	seq     uint64
	now     time.Time
	stored  map[string]json.RawMessage
	last    Step
	asked   int  // how many values had to be loaded
	sparing bool // no checks that cost much
	watch   func(Step)
}

func compileText(t testing.TB, text string) *Plan {
	t.Helper()
	def, err := drover.ParseDefinition([]byte(text))
	if err != nil {
		t.Fatalf("parse: %v", err)
	}
	p, err := Compile(def)
	if err != nil {
		t.Fatalf("compile: %v", err)
	}
	return p
}

func newWorld(t testing.TB, definition string) *world {
	return &world{t: t, p: compileText(t, definition), run: "r1", now: epoch, stored: map[string]json.RawMessage{}}
}

func (w *world) send(c *Command) Step {
	w.t.Helper()
	w.seq++
	c.Seq, c.At, c.Run = w.seq, w.now, w.run
	before := w.record
	loaded := map[string]json.RawMessage{}
	var step Step
	for round := 0; ; round++ {
		if round > 20 {
			w.t.Fatalf("%s needs values without end", c.Verb)
		}
		var err error
		step, err = Apply(w.p, w.s, c, func(k string) (json.RawMessage, bool) { raw, ok := loaded[k]; return raw, ok })
		need, ok := errors.AsType[*NeedError](err)
		if !ok {
			break
		}
		w.asked += len(need.Keys)
		w.load(need.Keys, loaded)
		if w.s = nil; before != nil {
			w.s = w.decode(before)
		}
	}
	w.last = step
	w.s = step.State
	w.after(step, before, loaded)
	if w.watch != nil {
		w.watch(step)
	}
	return step
}

// plan is the plan of the run, with the nodes that the body of a program has
// asked for.
func (w *world) plan() *Plan { return w.s.grown(w.p) }

func (w *world) load(keys []string, into map[string]json.RawMessage) {
	w.t.Helper()
	for _, k := range keys {
		raw, ok := w.stored[k]
		if !ok {
			w.t.Fatalf("needs %q, which was never put", k)
		}
		into[k] = raw
	}
}

func (w *world) decode(record []byte) *State {
	w.t.Helper()
	s, err := Decode(record)
	if err != nil {
		w.t.Fatalf("decode: %v", err)
	}
	return s
}

// after commits a step and checks it.
func (w *world) after(step Step, before []byte, loaded map[string]json.RawMessage) {
	w.t.Helper()
	if step.State == nil {
		return
	}
	if !step.Changed {
		if len(step.Puts)+len(step.Effects) > 0 && step.Refused == nil {
			w.t.Fatalf("nothing changed, with effects %v and puts %v", step.Effects, step.Puts)
		}
		if !w.sparing && before != nil && string(w.encode(step.State)) != string(before) {
			w.t.Fatalf("a command that changed nothing left\n%s\nof\n%s", w.encode(step.State), before)
		}
		return
	}
	for _, put := range step.Puts {
		if old, ok := w.stored[put.Key]; ok && string(old) != string(put.JSON) {
			w.t.Fatalf("%s is put twice: %s and %s", put.Key, old, put.JSON)
		}
		w.stored[put.Key] = put.JSON
	}
	step.State.Owed = Compact(step.Effects)
	w.record = w.encode(step.State)
	if w.sparing {
		return
	}
	if err := step.State.Check(w.p); err != nil {
		w.t.Fatalf("check: %v\n%s", err, w.record)
	}
	w.checkRemake(step, loaded)
}

// checkRemake holds that a record is enough to make the effects again.
func (w *world) checkRemake(step Step, loaded map[string]json.RawMessage) {
	w.t.Helper()
	s := w.decode(w.record)
	if again := w.encode(s); string(again) != string(w.record) {
		w.t.Fatalf("encoded\n%s\ndecoded and encoded\n%s", w.record, again)
	}
	all := maps.Clone(w.stored)
	effects, err := Effects(w.p, s, s.Owed, func(k string) (json.RawMessage, bool) { raw, ok := all[k]; return raw, ok })
	if err != nil {
		w.t.Fatalf("effects: %v", err)
	}
	made := slices.DeleteFunc(slices.Clone(step.Effects), func(e Effect) bool { return e.Kind == EffectNudge || e.Kind == EffectLook }) // which may be lost
	if len(effects) < len(made) {                                                                                                       // a call that was answered in the fold that made it
		f := fold{p: s.grown(w.p), s: s}
		made = slices.DeleteFunc(made, func(e Effect) bool { return e.Kind == EffectCall && f.outstanding(&e.Call.ID, ActiveCall) < 0 })
	}
	if len(effects) != len(made) {
		w.t.Fatalf("made %s again of %s", showEffects(effects), showEffects(step.Effects))
	}
	for i := range effects {
		if x, y := show(effects[i]), show(made[i]); x != y {
			w.t.Fatalf("effect %d made again\n%s\nof\n%s", i, x, y)
		}
	}
	if again := w.encode(s); string(again) != string(w.record) {
		w.t.Fatalf("Effects changed the state")
	}
	_ = loaded
}

func show(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func (w *world) encode(s *State) []byte {
	w.t.Helper()
	data, err := Encode(s)
	if err != nil {
		w.t.Fatalf("encode: %v", err)
	}
	return data
}

// The commands.

func (w *world) start(input string) Step {
	w.t.Helper()
	return w.startAs(drover.StartRequest{Input: json.RawMessage(input)})
}

func (w *world) startAs(r drover.StartRequest) Step {
	w.t.Helper()
	return w.send(&Command{Verb: drover.VerbStart, Start: &Start{StartRequest: r, Hash: w.p.Hash, Secret: "s3cret"}})
}

func (w *world) call(text string) drover.CallID {
	w.t.Helper()
	id, err := drover.ParseCallID(string(w.run) + "/" + text)
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

func (w *world) answer(call string, m drover.ResultMessage) Step {
	w.t.Helper()
	m.Call = w.call(call)
	if m.Token == "" {
		m.Token = Token("s3cret", m.Call.String())
	}
	return w.send(&Command{Verb: drover.VerbResult, Result: &m})
}

func (w *world) ok(call, output string) Step {
	w.t.Helper()
	return w.answer(call, drover.ResultMessage{Output: json.RawMessage(output), Instance: "i1"})
}

func (w *world) fail(call string, e drover.Error) Step {
	w.t.Helper()
	return w.answer(call, drover.ResultMessage{Error: &e, Instance: "i1"})
}

func (w *world) beat(call string) Step {
	w.t.Helper()
	return w.answer(call, drover.ResultMessage{Progress: json.RawMessage(`true`)})
}

func (w *world) tick() Step { w.t.Helper(); return w.send(&Command{Verb: drover.VerbTick}) }

func (w *world) stop(reason string) Step {
	w.t.Helper()
	return w.send(&Command{Verb: drover.VerbStop, Stop: &drover.StopRequest{Reason: reason}})
}

func (w *world) deliver(name, payload, id string) Step {
	w.t.Helper()
	return w.send(&Command{Verb: drover.VerbDeliver, Deliver: &drover.DeliverRequest{Name: name, Payload: json.RawMessage(payload), ID: id}})
}

func (w *world) child(call string, status drover.Status, result string, e *drover.Error) Step {
	w.t.Helper()
	id := w.call(call)
	return w.send(&Command{Verb: drover.VerbChild, Child: &drover.ChildMessage{
		Call: id, Token: Token("s3cret", id.String()), Child: drover.ChildRunID(id), Status: status, Result: json.RawMessage(result), Error: e,
	}})
}

func (w *world) hear(index, attempt int, receipt string, e *drover.Error) Step {
	w.t.Helper()
	id := w.s.deliveryID(index)
	return w.send(&Command{Verb: drover.VerbHeard, Heard: &drover.HeardMessage{
		DeliveryID: id, Token: Token("s3cret", string(id)), Attempt: attempt, Receipt: receipt, Error: e,
	}})
}

func (w *world) pass(d time.Duration) *world { w.now = w.now.Add(d); return w }

// What is asked of a world.

func (w *world) view() drover.Run {
	return View(w.p, w.s, func(k string) (json.RawMessage, bool) { raw, ok := w.stored[k]; return raw, ok }, true)
}

func (w *world) node(id drover.NodeID) drover.Node {
	w.t.Helper()
	for _, n := range w.view().Nodes {
		if n.ID == id {
			return n
		}
	}
	w.t.Fatalf("no node %s", id)
	return drover.Node{}
}

func (w *world) wantStatus(want drover.Status) {
	w.t.Helper()
	if w.s.Status != want {
		w.t.Fatalf("run is %s (%v), want %s", w.s.Status, w.s.Error, want)
	}
}

func (w *world) wantEffects(want ...string) {
	w.t.Helper()
	if got := effectNames(w.last.Effects); !slices.Equal(got, want) {
		w.t.Fatalf("effects\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func (w *world) wantResult(want string) {
	w.t.Helper()
	w.wantStatus(drover.StatusCompleted)
	if got := string(orNull(w.view().Result)); got != want {
		w.t.Fatalf("result %s, want %s", got, want)
	}
}

func (w *world) wantRefused(code drover.Code, words ...string) {
	w.t.Helper()
	if w.last.Refused == nil || w.last.Refused.Code != code {
		w.t.Fatalf("refused: %v, want %s", w.last.Refused, code)
	}
	wantWords(w.t, w.last.Refused.Message, words...)
}

func wantWords(t testing.TB, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Fatalf("%q does not say %q", text, word)
		}
	}
}

func effectNames(effects []Effect) []string {
	var list []string
	for _, e := range effects {
		list = append(list, effectName(e))
	}
	return list
}

// effectName is an effect in a word: what is done, to what.
func effectName(e Effect) string {
	switch e.Kind {
	case EffectCall, EffectCancel:
		_, id, _ := strings.Cut(e.Call.ID.String(), "/")
		return string(e.Kind) + " " + id
	case EffectStart, EffectStop:
		name := fmt.Sprintf("%s %s", e.Kind, e.Node)
		if e.Item > 0 {
			name += fmt.Sprintf("#%d", e.Item-1)
		}
		return fmt.Sprintf("%s@%d", name, e.Attempt)
	case EffectDeliver:
		return fmt.Sprintf("deliver %d@%d", e.Index, e.Attempt)
	case EffectWithdraw:
		if e.Call != nil {
			return "withdraw " + string(e.Call.Function) + " " + e.Call.ID.String()
		}
		return fmt.Sprintf("withdraw %v", e.Functions)
	case EffectClaim:
		return fmt.Sprintf("claim %s for %s", e.Token, e.Claim.ID)
	case EffectRelease:
		text := fmt.Sprintf("release %s of %s", e.Token, e.ClaimID)
		if e.Until > 0 {
			text += fmt.Sprintf(" at +%s", e.Until.Time().Sub(epoch))
		}
		return text
	case EffectHandOver:
		return fmt.Sprintf("hand over %q of %q to %s", e.Start.Hooks, e.ClaimIDs, e.To)
	case EffectRespond:
		return fmt.Sprintf("respond %d to %s", e.Status, e.Inbox)
	case EffectList, EffectUnlist:
		if e.Kind == EffectList && e.Delivery.Dead {
			return fmt.Sprintf("list %d as dead", e.Index)
		}
		return fmt.Sprintf("%s %d", e.Kind, e.Index)
	case EffectForget:
		return fmt.Sprintf("forget before %d", e.Attempt)
	case EffectDrive:
		return fmt.Sprintf("drive %d by %s", e.Attempt, e.Call.Function)
	case EffectLook:
		if e.Inbox != "" {
			return fmt.Sprintf("look for drive %d at %s", e.Attempt, e.Inbox)
		}
		return fmt.Sprintf("look for %s", e.Call.Function)
	case EffectNudge:
		return fmt.Sprintf("nudge %s", e.Inbox)
	case EffectTell, EffectDone:
	}
	return string(e.Kind)
}

func showEffects(effects []Effect) string { return strings.Join(effectNames(effects), ", ") }
