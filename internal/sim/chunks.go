package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/droverhq/drover"
)

// chunk is a message of a stream that a program writes.
type chunk struct {
	number     int
	text       string
	drive      int
	fence      int
	generation int
	base       int
}

// written is what a drive knows of a stream.
type written struct {
	known bool
	last  int // the sequence of the last message of the subject
	base  int
	have  int
}

func streamOf(run drover.RunID, id string) string { return string(run) + " " + id }

// flush has all that the body has written be stored, and goes on then.
func (t *turn) flush(then func()) {
	p := t.p
	for _, id := range slices.Sorted(maps.Keys(p.chunks)) {
		if len(p.chunks[id]) > t.storedOf(id).have {
			t.soon(func() { t.put(id, then) })
			return
		}
	}
	then()
}

func (t *turn) storedOf(id string) *written {
	if t.stored[id] == nil {
		t.stored[id] = &written{}
	}
	return t.stored[id]
}

// put makes one call for a stream: it reads the last message, or writes after it.
func (t *turn) put(id string, then func()) {
	w, s := t.d.w, t.storedOf(id)
	if w.chance(w.faults.Fail) {
		t.after(w.latency()*100, func() { t.flush(then) })
		return
	}
	if !s.known {
		if !t.tail(id, s) {
			w.saw("Programs13 an older writer stopped")
			t.leave(false)
			return
		}
		if w.chance(w.faults.Repeat) { // so that another one writes in between
			t.d.hang()
		}
		t.flush(then)
		return
	}
	name := streamOf(t.req.RunID, id)
	list := w.programs.chunks[name]
	left := t.p.chunks[id][s.have:]
	if len(list) != s.last {
		w.saw("Programs13 two wrote to a stream")
		s.known = false
		t.flush(then)
		return
	}
	for i, text := range left {
		c := chunk{number: s.base + s.have + i + 1, text: text, drive: t.req.Drive, fence: t.fence, generation: t.p.gen, base: s.base}
		list = append(list, c)
	}
	w.programs.chunks[name] = list
	w.programs.checkStream(w, name)
	if w.chance(w.faults.Unknown) {
		s.known = false
	} else {
		s.last, s.have = len(list), len(t.p.chunks[id])
	}
	t.flush(then)
}

// tail reads the last message of a stream. It is false where a later drive wrote it.
func (t *turn) tail(id string, s *written) bool {
	w := t.d.w
	list := w.programs.chunks[streamOf(t.req.RunID, id)]
	*s = written{known: true, last: len(list)}
	if len(list) == 0 {
		return true
	}
	c := list[len(list)-1]
	switch {
	case c.drive > t.req.Drive || c.drive == t.req.Drive && c.fence > t.fence:
		return false
	case c.generation != t.p.gen:
		w.saw("Programs13 a stream went on in a body that began anew")
		s.base = c.number
	default:
		if c.drive < t.req.Drive || c.fence < t.fence {
			w.saw("Programs13 a later drive found what an earlier one wrote")
		}
		s.base, s.have = c.base, c.number-c.base
	}
	return true
}

// checkStream holds a stream to its order: numbers have no gap, and nothing is there
// twice.
func (pr *programs) checkStream(w *World, name string) {
	list := pr.chunks[name]
	seen := map[string]bool{}
	for i, c := range list {
		key := fmt.Sprintf("%d %s", c.generation, c.text)
		if c.number != i+1 || seen[key] || i > 0 && c.generation < list[i-1].generation {
			w.violated("stream %s has %+v as number %d", name, c, i+1)
		}
		seen[key] = true
	}
}

// texts are the chunks of a stream.
func (pr *programs) texts(run drover.RunID, id string) string {
	var list []string
	for _, c := range pr.chunks[streamOf(run, id)] {
		list = append(list, c.text)
	}
	return strings.Join(list, " ")
}
