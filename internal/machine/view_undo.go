package machine

import (
	"strings"

	"github.com/droverhq/drover"
)

// compensations are how far the compensation of each node or item is; none
// where the run does not compensate. The record keeps only which one it is at,
// and what was said of those that failed; the rest follows from their order.
func compensations(p *Plan, s *State) map[place]*drover.Compensation {
	u := s.Undo
	if u == nil {
		return nil
	}
	f := fold{p: p, s: s}
	list := map[place]*drover.Compensation{}
	tries, failed := undoFailures(s), failedUndos(u)
	for _, k := range f.undoable(nil) {
		c, at := &drover.Compensation{}, place{k.node, k.item}
		list[at] = c
		switch order := k.compare(undoKey{u.End, u.Node, u.Item}); {
		case order < 0:
			c.Status = drover.CompensationPending
		case order == 0 && !s.Terminal():
			runningUndo(c, s.Active, tries[at])
		default:
			n := p.nodes[k.node]
			overUndo(c, n, tries[at], failed[undoName(n, k.item)], u.Lost > 0)
		}
	}
	return list
}

// undoFailures are the failed attempts of compensations, as far as they were
// kept.
func undoFailures(s *State) map[place][]*Failure {
	tries := map[place][]*Failure{}
	for i := range s.Nodes {
		for j := range s.Nodes[i].Failed {
			if x := &s.Nodes[i].Failed[j]; x.Undo {
				at := place{i, x.Item - 1}
				tries[at] = append(tries[at], x)
			}
		}
	}
	return tries
}

// failedUndos are the messages of the compensations that failed, by their names.
func failedUndos(u *Undo) map[string]string {
	failed := map[string]string{}
	for _, sentence := range u.Failed {
		if name, message, ok := strings.Cut(sentence, undoFailedBy); ok { // a name has no such words
			failed[name] = message
		}
	}
	return failed
}

func runningUndo(c *drover.Compensation, active []Active, tries []*Failure) {
	c.Status = drover.CompensationRunning
	for i := range active {
		if a := &active[i]; a.Undo {
			c.Attempts, c.StartedAt = a.Attempt, moment(a.Since)
			if a.Kind == ActivePause {
				c.Attempts, c.StartedAt = a.Attempt-1, nil
			}
		}
	}
	if last := len(tries) - 1; last >= 0 {
		c.StartedAt, c.Error = moment(tries[0].Started), tries[last].Error
	}
}

// overUndo tells of a compensation that is over. message is what was said of it
// where it failed; where there was no room for that of all, its attempts tell.
func overUndo(c *drover.Compensation, n *node, tries []*Failure, message string, lost bool) {
	c.Status, c.Attempts = drover.CompensationDone, 1
	var last *Failure
	if len(tries) > 0 {
		last = tries[len(tries)-1]
		c.Attempts, c.StartedAt = last.Attempt+1, moment(tries[0].Started)
	}
	if message == "" && !(lost && last != nil && final(n, last)) {
		return
	}
	c.Status, c.Attempts = drover.CompensationFailed, 0
	if last != nil {
		c.Attempts, c.EndedAt, c.Error = last.Attempt, moment(last.Ended), last.Error
	}
	if message != "" && (last == nil || cut(last.Error.Message, maxUndoMessage) != message) {
		c.Error = drover.Errorf(drover.CodeFailed, "%s", message)
	}
}

// final reports whether no attempt of a compensation follows one that failed.
func final(n *node, x *Failure) bool {
	most := n.undo.retry.max
	if !n.undo.retry.set {
		most = 1
		if x.Error.Code == drover.CodeTimeout {
			most = 2
		}
	}
	return x.Error.Permanent || x.Attempt >= most
}

// sumUndo sums up the compensations of a fan-out, nil where there are none.
func (w *viewer) sumUndo(i int) *drover.Compensation {
	counts := map[drover.CompensationStatus]int{}
	var sum drover.Compensation
	total := 0
	for k := range w.s.Nodes[i].Items.Total {
		c := w.undo[place{i, k}]
		if c == nil {
			continue
		}
		total++
		counts[c.Status]++
		if c.Error != nil {
			sum.Error = c.Error
		}
	}
	switch {
	case total == 0:
		return nil
	case counts[drover.CompensationPending] == total:
		sum.Status = drover.CompensationPending
	case counts[drover.CompensationPending]+counts[drover.CompensationRunning] > 0:
		sum.Status = drover.CompensationRunning
	case counts[drover.CompensationFailed] > 0:
		sum.Status = drover.CompensationFailed
	default:
		sum.Status = drover.CompensationDone
	}
	sum.Counts = counts
	return &sum
}
