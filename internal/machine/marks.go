package machine

import (
	"strings"

	"github.com/droverhq/drover"
)

// status spells a mark.
func (m Mark) status() drover.NodeStatus {
	switch m {
	case MarkPending:
		return drover.NodePending
	case MarkRunning:
		return drover.NodeRunning
	case MarkWaiting:
		return drover.NodeWaiting
	case MarkDone, MarkStored:
		return drover.NodeDone
	case MarkFailed:
		return drover.NodeFailed
	case MarkCancelled:
		return drover.NodeCancelled
	case MarkSkipped:
		return drover.NodeSkipped
	}
	return ""
}

func (m Mark) over() bool { return m.status().Terminal() }

// known reports whether a mark is one that a node or an item may have.
func (m Mark) known() bool { return m.status() != "" }

// cut cuts text to so many bytes, on a character.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// clip cuts an error to what a record can keep.
func clip(e *drover.Error) *drover.Error {
	const code, message, stack, problems, problem = 64, 4 << 10, 8 << 10, 20, 300
	if e == nil || len(e.Code) <= code && len(e.Message) <= message && len(e.Stack) <= stack && len(e.Problems) == 0 {
		return e
	}
	c := *e
	c.Code, c.Message, c.Stack = drover.Code(cut(string(e.Code), code)), cut(e.Message, message), cut(e.Stack, stack)
	c.Problems = nil
	for _, x := range e.Problems[:min(len(e.Problems), problems)] {
		x.Place, x.Message, x.Fix = cut(x.Place, problem), cut(x.Message, problem), cut(x.Fix, problem)
		c.Problems = append(c.Problems, x)
	}
	return &c
}
