package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/droverhq/drover"
)

// progress shows how a run comes along. It is used by one goroutine.
type progress interface {
	// show tells of a run as it is now.
	show(run *drover.Run)
	// tick is called every now and then, so that times go on.
	tick()
	// close leaves what was shown last.
	close()
}

// progressOn shows runs on a writer: in place where it is a terminal.
func progressOn(w io.Writer) progress {
	if _, _, ok := terminalSize(w); !ok {
		return newLines(w, time.Now)
	}
	size := func() (int, int) {
		width, height, _ := terminalSize(w)
		return width, height
	}
	return &screen{out: w, size: size, now: time.Now, color: painterFor(w).color}
}

// lines tells of a run line by line: one for every change of a node, and for
// fan-outs one for every tenth of the items.
type lines struct {
	out  io.Writer
	now  func() time.Time
	seen map[drover.NodeID]string
}

func newLines(out io.Writer, now func() time.Time) *lines {
	return &lines{out: out, now: now, seen: map[drover.NodeID]string{}}
}

func (l *lines) show(run *drover.Run) {
	for i := range run.Nodes {
		n := &run.Nodes[i]
		text := l.node(n)
		if text == "" || l.seen[n.ID] == text {
			continue
		}
		l.seen[n.ID] = text
		if took := took(n.StartedAt, n.EndedAt, l.now()); n.EndedAt != nil && took != "" {
			text += " in " + took
		}
		if n.Error != nil {
			text += ": " + shorten(n.Error.Error(), 200)
		}
		fmt.Fprintln(l.out, text)
	}
}

// node is what is told of a node, or "" where there is nothing yet. A line is
// written where it differs from the one before, so no time is in it.
func (l *lines) node(n *drover.Node) string {
	if n.Status == drover.NodePending {
		return ""
	}
	text := fmt.Sprintf("%s %s", n.ID, n.Status)
	if n.Items == nil {
		if last := len(n.Attempts) - 1; last >= 0 && n.Attempts[last].Attempt > 1 {
			text += fmt.Sprintf(" (attempt %d)", n.Attempts[last].Attempt)
		}
		return text
	}
	done := n.Items.Counts[drover.NodeDone]
	if step := max(1, n.Items.Total/10); !n.Status.Terminal() {
		done -= done % step
	}
	return fmt.Sprintf("%s (%d of %d)", text, done, n.Items.Total)
}

func (l *lines) tick() {}

func (l *lines) close() {}

// screen draws a run in place on a terminal.
type screen struct {
	out   io.Writer
	size  func() (width, height int)
	now   func() time.Time
	color bool
	last  *drover.Run
	tall  int // lines that stand on the terminal
}

func (s *screen) show(run *drover.Run) {
	s.last = run
	s.draw()
}

func (s *screen) tick() {
	if s.last != nil && !s.last.Status.Terminal() {
		s.draw()
	}
}

func (s *screen) close() { s.tall = 0 }

// draw writes over what it wrote before, in one write, so that nothing flickers.
func (s *screen) draw() {
	width, height := s.size()
	text := fit(painter{color: s.color, width: width}, s.last, s.now(), height-1)
	var b strings.Builder
	if s.tall > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r", s.tall)
	}
	b.WriteString(strings.ReplaceAll(text, "\n", "\x1b[K\n"))
	b.WriteString("\x1b[J")
	s.tall = strings.Count(text, "\n")
	_, _ = io.WriteString(s.out, b.String())
}

// fit draws a run in at most so many lines: where its nodes are too many, those
// that are over come as one line, then those that have not begun.
func fit(p painter, run *drover.Run, now time.Time, height int) string {
	if len(run.Nodes)+1 <= height || run.Status.Terminal() {
		return p.head(run, now) + p.nodes(run.Nodes, now)
	}
	var busy []drover.Node
	over, pending := 0, 0
	for i := range run.Nodes {
		switch n := &run.Nodes[i]; {
		case n.Status == drover.NodePending:
			pending++
		case n.Status.Terminal() && n.Status != drover.NodeFailed:
			over++
		default:
			busy = append(busy, *n)
		}
	}
	room := max(1, height-3)
	more := max(0, len(busy)-room)
	text := p.head(run, now)
	if over > 0 {
		text += p.line([2]string{"2", "    " + plural(over, "node") + " over"})
	}
	text += p.nodes(busy[:len(busy)-more], now)
	if rest := pending + more; rest > 0 {
		text += p.line([2]string{"2", "    " + plural(rest, "more node")})
	}
	return text
}

func (p painter) nodes(nodes []drover.Node, now time.Time) string {
	var b strings.Builder
	width := nameWidth(nodes)
	for i := range nodes {
		b.WriteString(p.node(&nodes[i], width, now))
	}
	return b.String()
}
