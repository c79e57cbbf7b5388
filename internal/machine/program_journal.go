package machine

import (
	"encoding/json"
	"fmt"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/rawjson"
	"github.com/droverhq/drover/subjects"
)

// write appends a line to the journal. Its output was kept.
func (f *fold) write(l Line) {
	g := f.s.Program
	l.At = f.now
	g.Entries++
	g.Idle = 0
	g.Tail = append(g.Tail, l)
	g.TailSize += l.size()
	f.changed = true
	if len(g.Tail) >= maxTailLines || g.TailSize >= maxTailBytes {
		f.flush()
	}
}

// flush makes a segment of the tail, and a page of segments that are many.
func (f *fold) flush() {
	g := f.s.Program
	first := g.Entries - len(g.Tail) + 1
	f.puts = append(f.puts, Put{Key: f.s.segmentKey(first), JSON: encodeLines(g.Tail)})
	g.Segments = append(g.Segments, first)
	if len(g.Segments) >= maxSegments {
		f.puts = append(f.puts, Put{Key: f.s.pageKey(g.Segments[0]), JSON: encodePage(g.Segments)})
		g.Pages, g.Segments = append(g.Pages, g.Segments[0]), nil
	}
	g.Tail, g.TailSize = nil, 0
	f.s.Inline = f.s.inlined()
}

// size is how many bytes a line has, more or less.
func (l *Line) size() int {
	n := 64 + len(l.ID) + len(l.Step) + len(l.Output.JSON)
	if l.Error != nil {
		n += len(l.Error.Message) + len(l.Error.Stack)
		for i := range l.Error.Problems {
			n += len(l.Error.Problems[i].Message) + len(l.Error.Problems[i].Fix)
		}
	}
	return n
}

// inlined counts the bytes of values that are in the record of a program: they
// leave it again, as the journal moves on.
func (s *State) inlined() int {
	n := len(s.Input.JSON) + len(s.Result.JSON)
	for i := range s.Program.Tail {
		n += len(s.Program.Tail[i].Output.JSON)
	}
	for i := range s.Program.Slots {
		n += len(s.Program.Slots[i].Input.JSON)
	}
	for i := range s.Unread {
		n += len(s.Unread[i].Payload.JSON)
	}
	for i := range s.Nodes {
		if r := s.Nodes[i].Reading; r != nil {
			for _, v := range r.Got {
				n += len(v.JSON)
			}
		}
	}
	return n
}

// nodeEnded writes how a node of the body ended, and has the body go on.
func (f *fold) nodeEnded(i int) {
	if f.hush < 0 || f.hush == i+1 {
		return
	}
	slot, ns := &f.s.Program.Slots[i], &f.s.Nodes[i]
	f.write(Line{Kind: drover.EntryEnded, ID: slot.ID, Attempt: slot.Pause, Output: ns.Output, Error: ns.Error, Started: ns.Started})
	f.tellDriver()
}

// tellDriver has the body learn of what is new: by the process that drives, or by
// a drive.
func (f *fold) tellDriver() {
	g := f.s.Program
	switch g.State {
	case DriveParked:
		f.drive()
	case DriveRunning:
		f.nudged = f.nudged || !f.recording
	case DriveQueued, DrivePausing, DriveBlocked, DriveOver:
	}
}

// sendDriver is the end of a fold: a drive that it asked for begins, or the
// process that drives is told.
func (f *fold) sendDriver() {
	g := f.s.Program
	switch {
	case g.State == DriveQueued && (g.Drive > f.drives || f.queued):
		f.effect(f.driveEffect())
	case f.nudged && g.Instance != "" && (g.State == DriveRunning || g.State == DriveOver):
		f.effect(Effect{Owed: Owed{Kind: EffectNudge}, Inbox: g.Instance, Entries: g.Entries})
	}
}

// encodeLines gives a segment.
func encodeLines(lines []Line) json.RawMessage {
	data, err := rawjson.Encode(lines)
	if err != nil { // each of them was JSON
		return json.RawMessage("[]")
	}
	return data
}

// encodePage gives a page: the numbers of the first entries of segments.
func encodePage(segments []int) json.RawMessage {
	data, err := json.Marshal(segments)
	if err != nil { // they are numbers
		return json.RawMessage("[]")
	}
	return data
}

// DecodeSegment reads a segment of a journal.
func DecodeSegment(raw json.RawMessage) ([]Line, error) {
	var lines []Line
	if err := json.Unmarshal(raw, &lines); err != nil {
		return nil, fmt.Errorf("a segment of a journal cannot be read: %w", err)
	}
	return lines, nil
}

// The keys of what a journal has in the values bucket.

func (s *State) lineKey(number int) string {
	return subjects.JournalKey(s.Run, s.Program.Generation, "line", number)
}

func (s *State) segmentKey(first int) string {
	return subjects.JournalKey(s.Run, s.Program.Generation, "segment", first)
}

func (s *State) pageKey(first int) string {
	return subjects.JournalKey(s.Run, s.Program.Generation, "page", first)
}
