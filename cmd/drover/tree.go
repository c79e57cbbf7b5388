package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/droverhq/drover"
)

// painter draws runs as text.
type painter struct {
	color bool // with the escape sequences of a terminal
	width int  // columns to cut lines at; 0: not cut
}

// The marks of node statuses, and the colours of the marks.
func mark(s drover.NodeStatus) (symbol, sgr string) {
	switch s {
	case drover.NodePending:
		return "·", "2"
	case drover.NodeRunning:
		return "●", "34"
	case drover.NodeWaiting:
		return "◔", "36"
	case drover.NodeDone:
		return "✓", "32"
	case drover.NodeFailed:
		return "✗", "31"
	case drover.NodeCancelled:
		return "⊘", "33"
	case drover.NodeSkipped:
		return "-", "2"
	}
	return "?", "0"
}

func (p painter) paint(sgr, s string) string {
	if !p.color || s == "" {
		return s
	}
	return "\x1b[" + sgr + "m" + s + "\x1b[0m"
}

// line ends a line of parts that are plain text and its colour by turns: cut
// to the width first, so that no escape sequence is cut.
func (p painter) line(parts ...[2]string) string {
	var b strings.Builder
	left := p.width
	for _, part := range parts {
		sgr, text := part[0], part[1]
		if p.width > 0 {
			runes := []rune(text)
			text = string(runes[:min(len(runes), left)])
			left -= min(len(runes), left)
		}
		if sgr == "" {
			b.WriteString(text)
		} else {
			b.WriteString(p.paint(sgr, text))
		}
	}
	return strings.TrimRight(b.String(), " ") + "\n"
}

// head is the line that tells of a run as a whole.
func (p painter) head(run *drover.Run, now time.Time) string {
	name := string(run.Workflow)
	switch {
	case name == "" && run.Program != nil:
		name = "program " + run.Program.Name
	case name == "":
		name = "run"
	}
	return p.line([2]string{"1", name}, [2]string{"", " " + string(run.ID) + "  "},
		[2]string{statusColor(run.Status), string(run.Status)},
		[2]string{"2", "  " + took(&run.CreatedAt, run.EndedAt, now)})
}

func statusColor(s drover.Status) string {
	switch s {
	case drover.StatusCompleted:
		return "32"
	case drover.StatusFailed, drover.StatusCompensationFailed:
		return "31"
	case drover.StatusCancelled, drover.StatusCompensated, drover.StatusBlocked:
		return "33"
	case drover.StatusRunning, drover.StatusWaiting:
		return "34"
	}
	return "0"
}

// node is the line of one node, with room for the longest name and kind.
func (p painter) node(n *drover.Node, nameWidth int, now time.Time) string {
	symbol, sgr := mark(n.Status)
	text := fmt.Sprintf(" %s  %-8s", pad(string(n.ID), nameWidth), n.Kind)
	return p.line([2]string{sgr, "  " + symbol}, [2]string{"", text},
		[2]string{"", pad(p.progress(n), 9) + "  "},
		[2]string{"2", pad(took(n.StartedAt, n.EndedAt, now), 6)},
		[2]string{"2", p.remark(n)})
}

// progress is the middle of a node's line: its status, or how far its fan-out
// has come.
func (painter) progress(n *drover.Node) string {
	if n.Items == nil {
		return string(n.Status)
	}
	over := 0
	for _, s := range []drover.NodeStatus{drover.NodeDone, drover.NodeFailed, drover.NodeCancelled, drover.NodeSkipped} {
		over += n.Items.Counts[s]
	}
	text := fmt.Sprintf("%s %d/%d", bar(over, n.Items.Total, 10), n.Items.Counts[drover.NodeDone], n.Items.Total)
	if c := n.Items.Counts[drover.NodeRunning]; c > 0 {
		text += fmt.Sprintf(", %d in flight", c) // queued or being performed: the record cannot know
	}
	for _, s := range []drover.NodeStatus{drover.NodeWaiting, drover.NodeFailed, drover.NodeCancelled, drover.NodeSkipped} {
		if c := n.Items.Counts[s]; c > 0 {
			text += fmt.Sprintf(", %d %s", c, s)
		}
	}
	return text
}

// remark is the end of a node's line: its child, its attempts, its error.
func (painter) remark(n *drover.Node) string {
	var parts []string
	if n.Child != "" {
		parts = append(parts, "run "+string(n.Child))
	}
	if last := len(n.Attempts) - 1; last > 0 || last == 0 && n.Attempts[0].Attempt > 1 {
		parts = append(parts, "attempt "+strconv.Itoa(n.Attempts[last].Attempt))
	}
	if n.Error != nil {
		parts = append(parts, shorten(n.Error.Error(), 200))
	} else if last := len(n.Attempts) - 1; last >= 0 && n.Attempts[last].Error != nil {
		parts = append(parts, shorten(n.Attempts[last].Error.Error(), 200))
	}
	if n.Compensation != nil {
		parts = append(parts, compensation(n.Compensation))
	}
	if len(parts) == 0 {
		return ""
	}
	return "  " + strings.Join(parts, ", ")
}

// compensation tells how far what a node did is undone.
func compensation(c *drover.Compensation) string {
	text := ""
	switch c.Status {
	case drover.CompensationPending:
		text = "↶ to be compensated"
	case drover.CompensationRunning:
		text = "↶ compensating"
		if c.Attempts > 1 {
			text += ", attempt " + strconv.Itoa(c.Attempts)
		}
	case drover.CompensationDone:
		text = "↶ compensated"
	case drover.CompensationFailed:
		text = "↶ compensation failed"
	}
	if len(c.Counts) > 0 && c.Status != drover.CompensationPending {
		total := 0
		for _, n := range c.Counts {
			total += n
		}
		text += fmt.Sprintf(" %d/%d", c.Counts[drover.CompensationDone], total)
	}
	if c.Error != nil {
		text += ": " + shorten(c.Error.Error(), 200)
	}
	return text
}

// tree is a run with all its nodes, and below them its error and who is told
// its outcome.
func (p painter) tree(run *drover.Run, now time.Time) string {
	var b strings.Builder
	b.WriteString(p.head(run, now))
	if run.Parent != nil {
		b.WriteString(p.line([2]string{"2", fmt.Sprintf("  child of run %s, node %s", run.Parent.Run, run.Parent.Node)}))
	}
	b.WriteString(p.program(run.Program, now))
	for _, key := range slices.Sorted(maps.Keys(run.Metadata)) {
		b.WriteString(p.line([2]string{"2", "  " + visible(key, 60) + ": "}, [2]string{"", visible(string(run.Metadata[key]), 200)}))
	}
	b.WriteString(p.nodes(run.Nodes, now))
	if run.Error != nil {
		for i, line := range strings.Split(run.Error.Error(), "\n") {
			lead := "  error: "
			if i > 0 {
				lead = "         "
			}
			b.WriteString(p.line([2]string{"31", lead}, [2]string{"", line}))
		}
	}
	for _, d := range run.Deliveries {
		if !run.Status.Terminal() {
			break // there is nothing to deliver yet
		}
		b.WriteString(p.line([2]string{"2", "  outcome to " + visible(d.Notify.To(), 100) + ": " + told(&d, now)}))
		if d.Status == drover.DeliveryDead {
			b.WriteString(p.line([2]string{"2", "    drover delivery replay " + string(d.ID)}))
		}
	}
	if run.Unread > 0 {
		b.WriteString(p.line([2]string{"2", "  unread by any wait: " + plural(run.Unread, "message")}))
	}
	return b.String()
}

// told says how far a delivery of the outcome is.
func told(d *drover.Delivery, now time.Time) string {
	text := string(d.Status)
	switch d.Status {
	case drover.DeliveryConsumed:
		return "taken by whoever waited for the run"
	case drover.DeliveryHeld:
		return "held for whoever waits for the run, told " + nextIn(d.NextAt, now) + " at the latest"
	case drover.DeliveryNone, drover.DeliveryDelivered:
		if d.Attempts > 1 {
			text += ", attempt " + strconv.Itoa(d.Attempts)
		}
		return text
	case drover.DeliveryPending:
		text += fmt.Sprintf(", attempt %d", d.Attempts+1)
		switch {
		case d.LastError == nil:
			return text + " is under way"
		case d.NextAt != nil:
			text += " " + nextIn(d.NextAt, now)
		}
	case drover.DeliveryDead:
		text += " after " + plural(d.Attempts, "attempt")
	}
	if d.LastError != nil {
		text += ": " + shorten(d.LastError.Error(), 200)
	}
	return text
}

// nameWidth is the room for the names of nodes.
func nameWidth(nodes []drover.Node) int {
	width := 4
	for i := range nodes {
		width = max(width, len([]rune(nodes[i].ID)))
	}
	return min(width, 32)
}

// pad fills a text with spaces on its right.
func pad(s string, width int) string {
	n := len([]rune(s))
	if n >= width {
		return s
	}
	return s + strings.Repeat(" ", width-n)
}

// bar draws how much of a total is over.
func bar(over, total, width int) string {
	full := width
	if total > 0 {
		full = over * width / total
	}
	return "[" + strings.Repeat("█", full) + strings.Repeat("░", width-full) + "]"
}

// took is how long something took, or takes so far; "" where it has not begun.
func took(start, end *time.Time, now time.Time) string {
	if start == nil || start.IsZero() {
		return ""
	}
	if end != nil {
		now = *end
	}
	return elapsed(now.Sub(*start))
}

// elapsed spells a duration short enough for a column.
func elapsed(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}
