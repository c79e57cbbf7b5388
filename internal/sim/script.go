package sim

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/droverhq/drover"
)

// script is what the body of a program does, in each generation.
type script struct {
	n        int
	pure     bool // how it ends follows from its input alone
	gens     [][]move
	changed  string // version v2 has another id for this move
	patched  bool   // and marks that, so that both fit
	child    bool   // it is for children: nobody feeds it
	settings map[string]any
	waits    []*move // that somebody feeds
	ids      int
	panics   int
	big      bool // its input is
}

// moveKind is one thing that a body may do.
type moveKind int

const (
	doStep moveKind = iota
	doSleep
	doWait
	doCall
	doChild
	doSelect
	doGroup
	doParallel
	doMeta
	doValue
	doChunk
	doFail
	doPanic
	doAgain
	doHook
	doApprove
	doStray // it asks for something else in each drive
)

// move is one of them.
type move struct {
	kind     moveKind
	id       string
	attempts int           // step: that it may take; 0: one, and no policy
	fails    int           // step: attempts that fail
	fatal    bool          // and say that trying again cannot help
	undo     int           // step: which attempt of its compensation succeeds; 0: it has none
	kills    int           // step: processes that die in it
	takes    time.Duration // step
	later    bool          // step: and say when the next one is to come
	pad      int           // step: bytes that it gives; wait: that it gets
	name     string        // wait: of the deliveries; hook: its token; chunk: of the stream
	limit    time.Duration // sleep; wait: its timeout, 0: none
	swallow  bool          // its error does not end the body
	inner    []move        // group; select: waits and sleeps
	branches [][]move      // parallel
	settle   bool          // parallel: all of them
	script   int           // child; -1: a definition
	how      string        // child: detach, abandon
	target   drover.MetaTarget
	times    int // panic: so often
}

// program is the name of the program of all scripts.
const program = "prog"

// definition is that of the runs of a script.
func (s *script) definition() json.RawMessage {
	def := map[string]any{"program": program}
	for key, v := range s.settings {
		def[key] = v
	}
	data, _ := json.Marshal(def) // text and numbers
	return data
}

func (s *script) input() json.RawMessage {
	pad := ""
	if s.big {
		pad = strings.Repeat("x", 3000)
	}
	return json.RawMessage(fmt.Sprintf(`{"script":%d,"pad":%q}`, s.n, pad))
}

// author writes scripts.
type author struct {
	w *World
	s *script
}

// author makes a script, and those of its children before it.
func (w *World) author(pure bool, depth int) *script {
	a := &author{w, &script{pure: pure, child: depth > 0, settings: map[string]any{"version_wait": "20s"}}}
	a.s.big = w.chance(0.2)
	most := []int{6, 6, 6, 20}[w.rng.IntN(4)] / (1 + depth)
	for range 1 + w.rng.IntN(2)*w.rng.IntN(2)*(1+w.rng.IntN(2)) {
		a.s.ids = 0 // each generation may use its ids again
		a.s.gens = append(a.s.gens, a.moves(2+w.rng.IntN(most), depth, false))
	}
	if w.chance(0.1) { // so that its journal does not fit into the record
		for range 20 {
			a.s.gens[0] = append(a.s.gens[0], move{kind: doStep, id: a.id("many"), pad: 1900})
		}
	}
	last := len(a.s.gens) - 1
	for g := range last {
		a.s.gens[g] = append(a.s.gens[g], move{kind: doAgain, id: a.id("again")})
	}
	if w.chance(0.25) {
		a.s.gens[last] = append(a.s.gens[last], move{kind: doFail, id: a.id("fail")})
	}
	a.wild(depth)
	a.s.n = len(w.programs.scripts)
	w.programs.scripts = append(w.programs.scripts, a.s)
	return a.s
}

// wild gives a script that is not pure what may end it in ways that depend on when
// things happen.
func (a *author) wild(depth int) {
	w, s := a.w, a.s
	if s.pure {
		return
	}
	if w.chance(0.15) {
		s.settings["timeout"] = fmt.Sprintf("%ds", 5+w.rng.IntN(200))
	}
	if w.chance(0.1) {
		s.settings["compute_timeout"] = fmt.Sprintf("%ds", 1+w.rng.IntN(20))
	}
	if w.chance(0.2) {
		s.settings["max_drives"] = 3 + w.rng.IntN(4)
	}
	first := &s.gens[0]
	at := w.rng.IntN(len(*first))
	switch kind := w.rng.IntN(20); {
	case kind < 2:
		(*first)[at] = move{kind: doPanic, id: a.id("broken"), times: 100}
	case kind == 2:
		(*first)[at] = move{kind: doStep, id: a.id("poison"), kills: 1000}
		s.settings["max_drives"] = 3
	case kind == 3 && depth == 0:
		*first = append(*first, move{kind: doSleep, id: a.id("nap"), limit: time.Second}, move{kind: doStray, id: a.id("stray"), takes: time.Second})
	case kind < 17:
		at *= w.rng.IntN(2) // often the first one, that every drive comes by
		for at < len(*first) && (*first)[at].kind != doStep {
			at++
		}
		if at < len(*first) {
			s.changed, s.patched = (*first)[at].id, w.chance(0.5)
		}
	}
}

func (a *author) id(what string) string {
	a.s.ids++
	return fmt.Sprintf("%s%d", what, a.s.ids)
}

func (a *author) moves(n, depth int, nested bool) []move {
	var list []move
	for range n {
		list = append(list, a.move(depth, nested))
	}
	return list
}

// move makes one move. What is nested has no more of that in it.
func (a *author) move(depth int, nested bool) move {
	w := a.w
	if !a.s.pure && w.hooked != nil && w.chance(0.2) {
		return a.hook()
	}
	switch kind := w.rng.IntN(24); {
	case kind < 8:
		return a.step()
	case kind < 9:
		return move{kind: doSleep, id: a.id("sleep"), limit: []time.Duration{20 * time.Millisecond, 3 * time.Second, 2 * time.Minute}[w.rng.IntN(3)]}
	case kind < 12:
		return a.wait()
	case kind < 13:
		return move{kind: doCall, id: a.id("call"), swallow: w.chance(0.5)}
	case kind < 15:
		return a.invoke(depth)
	case kind < 16:
		return move{kind: doMeta, id: a.id("meta"), target: []drover.MetaTarget{drover.MetaSelf, drover.MetaParent, drover.MetaRoot}[w.rng.IntN(3)]}
	case kind < 17:
		return move{kind: doValue, id: a.id("value")}
	case kind < 19:
		return move{kind: doChunk, id: a.id("chunk"), name: []string{"out", "log"}[w.rng.IntN(2)]}
	case kind < 20 && w.chance(0.3) && a.s.panics == 0:
		a.s.panics++
		return move{kind: doPanic, id: a.id("panic"), times: 1 + w.rng.IntN(2)}
	case kind < 22 && !nested:
		return move{kind: doGroup, id: a.id("group"), inner: a.moves(1+w.rng.IntN(3), depth, true), swallow: true}
	case !nested:
		return a.parallel(depth)
	case !a.s.pure:
		return move{kind: doSelect, id: a.id("select"), inner: []move{a.loose(), a.loose()}, swallow: true}
	}
	return a.step()
}

func (a *author) step() move {
	w := a.w
	m := move{
		kind: doStep, id: a.id("step"), takes: []time.Duration{time.Millisecond, 50 * time.Millisecond, time.Second, 15 * time.Second}[w.rng.IntN(4)],
		pad: []int{0, 0, 1900, 3000}[w.rng.IntN(4)], swallow: w.chance(0.5),
	}
	if w.chance(0.5) {
		m.attempts = 2 + w.rng.IntN(2)
	}
	if w.chance(0.3) {
		m.fails, m.fatal, m.later = 1+w.rng.IntN(3), w.chance(0.2), w.chance(0.2)
	}
	if w.chance(0.6) {
		m.undo = 1 + w.rng.IntN(3)*w.rng.IntN(2)
	}
	if w.chance(0.05) {
		m.kills = 1
	}
	return m
}

// wait makes a wait: for something that comes, or with a timeout. In a pure script
// it is known which of the two it will be.
func (a *author) wait() move {
	w := a.w
	m := move{kind: doWait, id: a.id("wait"), swallow: w.chance(0.7)}
	m.name = fmt.Sprintf("%s-%d", m.id, len(a.s.gens))
	if w.chance(0.2) {
		m.pad = 3000
	}
	fed := !a.s.child && w.chance(0.6)
	if !fed || !a.s.pure && w.chance(0.7) {
		m.limit = []time.Duration{50 * time.Millisecond, 5 * time.Second, 40 * time.Second}[w.rng.IntN(3)]
	}
	if !a.s.pure && w.chance(0.6) {
		m.name = []string{"news", "mail"}[w.rng.IntN(2)]
	}
	if a.s.pure && w.chance(0.3) {
		m.name += "-null"
	}
	if fed {
		own := m
		a.s.waits = append(a.s.waits, &own)
	}
	return m
}

// hook makes a wait for a token, which others may hold, or for a decision.
func (a *author) hook() move {
	m := move{kind: doHook, id: a.id("hook"), name: a.w.hooked.tokens[a.w.rng.IntN(2)], swallow: true}
	m.limit = []time.Duration{50 * time.Millisecond, 5 * time.Second, 40 * time.Second}[a.w.rng.IntN(3)]
	if a.w.chance(0.3) {
		m.kind = doApprove
	}
	return m
}

// loose makes a wait or a sleep for a select.
func (a *author) loose() move {
	if a.w.hooked != nil && a.w.chance(0.3) {
		return a.hook()
	}
	if a.w.chance(0.4) {
		return move{kind: doSleep, id: a.id("late"), limit: time.Duration(1+a.w.rng.IntN(20)) * time.Second}
	}
	return a.wait()
}

// invoke makes a child: another script, or a definition.
func (a *author) invoke(depth int) move {
	w := a.w
	m := move{kind: doChild, id: a.id("child"), script: -1, swallow: w.chance(0.7)}
	if depth < 2 && w.chance(0.6) {
		m.script = w.author(a.s.pure, depth+1).n
	}
	if !a.s.pure && w.chance(0.5) {
		m.how = []string{"detach", "abandon"}[w.rng.IntN(2)]
	}
	return m
}

func (a *author) parallel(depth int) move {
	w := a.w
	m := move{kind: doParallel, id: a.id("parallel"), settle: a.s.pure || w.chance(0.5), swallow: w.chance(0.5)}
	for n := range 2 + w.rng.IntN(2) {
		moves := a.moves(1+w.rng.IntN(3), depth, true)
		for i := range moves {
			if moves[i].kind == doChunk { // the order of branches is no input
				moves[i].name = fmt.Sprintf("%s-%d", m.id, n)
			}
		}
		m.branches = append(m.branches, moves)
	}
	return m
}

// node is what the body asks for, as a step of a definition.
func (w *World) node(s *script, m *move) (step, input json.RawMessage) {
	var text string
	switch m.kind {
	case doSleep:
		text = fmt.Sprintf(`{"sleep":"%dms"}`, m.limit.Milliseconds())
	case doWait:
		text = fmt.Sprintf(`{"wait":{"name":%q}}`, m.name)
		if m.limit > 0 {
			text = fmt.Sprintf(`{"wait":{"name":%q,"timeout":"%dms"}}`, m.name, m.limit.Milliseconds())
		}
	case doHook:
		text = fmt.Sprintf(`{"wait":{"hook":%q,"timeout":"%dms"}}`, m.name, m.limit.Milliseconds())
	case doApprove:
		text = fmt.Sprintf(`{"wait":{"approve":{"q":1},"timeout":"%dms"}}`, m.limit.Milliseconds())
	case doCall:
		text, input = `{"call":"sure","timeout":"20m"}`, json.RawMessage(`1`)
		if !s.pure {
			text = `{"call":"work","timeout":"5s","retry":{"max_attempts":2,"initial":"200ms"}}`
		}
	case doChild:
		how := ""
		if m.how != "" {
			how = fmt.Sprintf(`,%q:true`, m.how)
		}
		def, in := json.RawMessage(`{"nodes":{"nap":{"sleep":"1s"},"set":{"set":{"with":1},"depends_on":["nap"]}},"output":{"from":"node:set"}}`), json.RawMessage(`{}`)
		if m.script >= 0 {
			def, in = w.programs.scripts[m.script].definition(), w.programs.scripts[m.script].input()
		}
		text, input = fmt.Sprintf(`{"run":{"definition":%s%s}}`, def, how), in
	case doStep, doSelect, doGroup, doParallel, doMeta, doValue, doChunk, doFail, doPanic, doAgain, doStray:
		w.violated("move %s is no node", m.id)
	}
	return json.RawMessage(text), input
}
