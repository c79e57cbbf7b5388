package machine

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// advance does all that can be done now: it decides every node of which all
// that it needs is over, fills free slots, and ends the run when its output's
// closure is over or a node failed that must not.
func (f *fold) advance() {
	if f.s.Terminal() || f.s.Undo != nil {
		return
	}
	for {
		f.serveOthers()
		for len(f.queue) > 0 && !f.failed {
			i := f.queue[0]
			f.queue = f.queue[1:]
			f.decide(i)
		}
		if f.failed || f.d.left == 0 && f.s.Program == nil || !f.fill() {
			break
		}
	}
	switch {
	case len(f.need) > 0 || f.s.Program != nil:
	case f.failed:
		f.end(drover.StatusFailed, f.nodesFailed())
	case f.d.left == 0:
		f.complete()
	}
}

// decide says what becomes of a node of which all that it needs is over.
func (f *fold) decide(i int) {
	n := f.p.nodes[i]
	f.changed = true
	if !f.satisfied(n) {
		f.finish(i, MarkSkipped, Value{}, nil)
		return
	}
	if n.when != nil {
		raw, err := f.formula(n.when, n, drover.NoItem)
		if err != nil {
			f.spoil(i, drover.NoItem, "when", err)
			return
		}
		if string(raw) != "true" {
			f.finish(i, MarkSkipped, Value{}, nil)
			return
		}
	}
	if n.fans() {
		f.expand(i)
		return
	}
	if !f.count(n, 1) {
		return
	}
	switch n.kind {
	case drover.KindSet:
		f.set(i)
	case drover.KindSleep:
		f.sleep(i)
	case drover.KindWait:
		f.wait(i)
	case drover.KindRelease:
		f.releases(i)
	case drover.KindRespond:
		f.responds(i)
	case drover.KindCall, drover.KindRequest, drover.KindHTTP, drover.KindAgent, drover.KindRun:
		f.s.Ready = append(f.s.Ready, Active{Node: i, Item: drover.NoItem, Attempt: 1})
	}
}

// satisfied reports whether a node may run, given how what it needs ended.
func (f *fold) satisfied(n *node) bool {
	if n.step.Require == drover.RequireTerminal {
		return true
	}
	for _, dep := range n.deps {
		switch mark := f.s.Nodes[dep].Status; {
		case mark == MarkDone:
		case n.step.Require == drover.RequireSucceeded:
			return false
		case mark != MarkSkipped && !f.p.nodes[dep].continues():
			return false
		}
	}
	return true
}

// count counts nodes and items that are set off. It fails the node where the
// run may have no more.
func (f *fold) count(n *node, more int) bool {
	if f.s.Calls+more > drover.MaxCalls {
		f.finish(n.at, MarkFailed, Value{}, drover.Errorf(drover.CodeTooLarge,
			"node %s would make %d calls, and the run %d, more than %d: split it into child runs", n.id, more, f.s.Calls+more, drover.MaxCalls))
		return false
	}
	f.s.Calls += more
	return true
}

// spoil fails a node or an item because something of it could not be made,
// unless that is a value that is not loaded.
func (f *fold) spoil(i, item int, what string, err error) {
	if errors.Is(err, errMissing) {
		return
	}
	e := *drover.AsError(err, drover.CodeExpression)
	e.Message = what + " of node " + string(f.p.nodes[i].id) + ": " + e.Message
	f.over(i, item, MarkFailed, nil, "", &e)
}

// over ends a node or an item of it. The output goes behind key where it is
// big.
func (f *fold) over(i, item int, mark Mark, output json.RawMessage, key string, err *drover.Error) {
	if item != drover.NoItem {
		f.itemOver(i, item, mark, output, key, err)
		return
	}
	v := Value{}
	if mark == MarkDone {
		v = f.keep(output, key)
	}
	f.finish(i, mark, v, err)
}

// finish ends a node.
func (f *fold) finish(i int, mark Mark, output Value, err *drover.Error) {
	n, ns := f.p.nodes[i], &f.s.Nodes[i]
	if ns.Status.over() {
		return
	}
	f.changed = true
	ns.Status, ns.Output, ns.Error = mark, output, clip(err)
	if mark != MarkSkipped {
		ns.Ended = f.now
		if ns.Started == 0 {
			ns.Started = f.now
		}
	}
	if mark != MarkDone {
		f.handBack(i)
	}
	if ns.Reading != nil {
		ns.Reading.Got, ns.Reading.Size = nil, 0
		if ns.Reading.Respond == "" {
			ns.Reading = nil
		}
	}
	delete(f.d.items, i)
	f.close(i)
	if n.needed {
		f.d.left--
	}
	if (mark == MarkFailed || mark == MarkCancelled) && n.vital && !n.continues() {
		f.failed = true
	}
	for _, user := range n.users {
		if f.d.unmet[user]--; f.d.unmet[user] == 0 {
			f.queue = append(f.queue, user)
		}
	}
	if f.s.Program != nil && !f.s.Terminal() {
		f.nodeEnded(i)
	}
	f.hookOver(i, mark)
}

// set computes the value of a node.
func (f *fold) set(i int) {
	n := f.p.nodes[i]
	f.begins(i)
	raw, err := f.computed(n, drover.NoItem)
	if err != nil {
		f.spoil(i, drover.NoItem, "the value", err)
		return
	}
	f.over(i, drover.NoItem, MarkDone, raw, subjects.OutputKey(f.callID(n, drover.NoItem, false, 1)), nil)
}

// computed is the value of a set node or of one item of it, and fits its contract.
func (f *fold) computed(n *node, item int) (json.RawMessage, error) {
	raw, err := f.formula(n.set, n, item)
	if err != nil {
		return nil, err
	}
	if bad := fit(raw, "value", n); bad != nil {
		return nil, bad
	}
	raw, bad := f.conform(n, raw)
	if bad != nil {
		return nil, bad
	}
	return raw, nil
}

// begins notes that a node was set off.
func (f *fold) begins(i int) {
	if ns := &f.s.Nodes[i]; ns.Started == 0 {
		ns.Started = f.now
	}
}

// sleep parks a node on a timer.
func (f *fold) sleep(i int) {
	n := f.p.nodes[i]
	due := after(f.ceil, time.Duration(n.step.Sleep.For))
	if n.until != nil {
		raw, err := f.formula(n.until, n, drover.NoItem)
		if err == nil {
			due, err = instant(raw)
		}
		if err != nil {
			f.begins(i)
			f.spoil(i, drover.NoItem, "sleep.until", err)
			return
		}
	}
	f.begins(i)
	if due <= f.now {
		f.finish(i, MarkDone, Value{}, nil)
		return
	}
	f.s.Nodes[i].Status = MarkWaiting
	f.add(Active{Kind: ActiveSleep, Node: i, Item: drover.NoItem, Attempt: 1, Since: f.now, Due: due})
}

// instant reads the time that a sleep lasts until.
func instant(raw json.RawMessage) (Millis, error) {
	bad := drover.Errorf(drover.CodeExpression, "%s is no time: give RFC 3339 text or seconds since 1970", cut(string(raw), 80))
	if kind(raw) == "a string" {
		var text string
		if json.Unmarshal(raw, &text) != nil {
			return 0, bad
		}
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return 0, bad
		}
		return ceilMillis(t), nil
	}
	seconds, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || seconds < 0 || seconds > farthest/1000 {
		return 0, bad
	}
	return Millis(seconds*1000 + 0.999), nil
}

// farthest is a time in the year 9999, in milliseconds: as late as RFC 3339 can tell.
const farthest = 253_370_764_800_000

// after adds a duration to a time, rounded up, and no later than can be told.
func after(m Millis, d time.Duration) Millis {
	return min(m+Millis((max(d, 0)+time.Millisecond-1)/time.Millisecond), farthest)
}

// nodesFailed is the error of a run whose nodes failed.
func (f *fold) nodesFailed() *drover.Error {
	const most = 8 << 10
	var bad []int
	for i := range f.s.Nodes {
		if m := f.s.Nodes[i].Status; (m == MarkFailed || m == MarkCancelled) && !f.p.nodes[i].continues() {
			bad = append(bad, i)
		}
	}
	slices.SortStableFunc(bad, func(a, b int) int { // those that matter first
		return boolRank(f.p.nodes[b].vital) - boolRank(f.p.nodes[a].vital)
	})
	text := ""
	for _, i := range bad {
		verb, why := "failed", ""
		if f.s.Nodes[i].Status == MarkCancelled {
			verb = "was cancelled"
		}
		if e := f.s.Nodes[i].Error; e != nil {
			why = ": " + cut(e.Message, max(100, (most-len(text))/2))
		}
		if text != "" {
			text += "; "
		}
		text += "node " + string(f.p.nodes[i].id) + " " + verb + why
	}
	return &drover.Error{Code: drover.CodeNodesFailed, Message: text}
}

func boolRank(b bool) int {
	if b {
		return 1
	}
	return 0
}
