package flow

import (
	"encoding/json"
	"strings"

	"github.com/droverhq/drover"
)

// EntryChunk is the kind of the Op of a chunk, or of the end of a stream: ID is
// that of the stream, Input the chunk.
const EntryChunk drover.EntryKind = "chunk"

// Writer writes a stream: chunks that others read while the run goes on, and
// later, for as long as it is kept. They are no part of the journal. Only the
// branch that made a Writer may use it, and no step may.
//
// A body that is driven again writes the same chunks again, and none of them is
// stored twice. Writing returns at once: chunks are stored in the background, in
// the order in which they were written, and all of them are there when Close
// returns, when the run is over, and while its body waits for others.
type Writer struct {
	run *Run
	s   *stream
	err error // it cannot be
}

// stream is what a body has written of a stream.
type stream struct {
	id     string
	number int // messages that the body has written
	closed bool
	queue  []StreamMessage // not stored yet; of the outbox

	// What is stored, as far as it is known; of whoever stores.
	known    bool
	sequence uint64
	base     int // messages that the body wrote before it began anew
	have     int // and since then
	ended    bool
}

// Stream begins a stream of the run. A run has a stream once; its id is as that of
// a step, and may be that of one. A stream that is not closed ends with the run.
// A body that begins anew (ContinueAsNew) goes on with a stream that it did not
// close.
func Stream(run *Run, id string) *Writer {
	run.b.enter()
	c, w := run.b.c, &Writer{run: run}
	switch {
	case checkID(id) != nil:
		w.err = permanent(drover.CodeInvalidID, "id %q of a stream in program %s must be 1 to 100 bytes without # . / * > ~ @ or white space", cut(id, 110), c.def.name)
	case c.streams[id] != nil:
		w.err = permanent(drover.CodeConflict, "stream %q is begun twice in a run of program %s: keep its Writer", id, c.def.name)
	default:
		w.s = &stream{id: id}
		c.streams[id] = w.s
	}
	return w
}

// checkID refuses what is no id of a step, node or stream.
func checkID(id string) error {
	const length = 100
	if _, err := drover.ParseNodeID(id); err != nil {
		return err
	}
	if len(id) > length || strings.ContainsAny(id, "~@") {
		return drover.Errorf(drover.CodeInvalidID, "it has %d bytes, or ~ or @", len(id))
	}
	return nil
}

// Text writes text as one chunk. Its error, as that of the other methods, says
// that there can be no such chunk: it has more than drover.MaxChunk bytes, or the
// stream is closed.
func (w *Writer) Text(text string) error {
	return w.write(StreamMessage{Type: drover.ChunkText, Data: []byte(text)})
}

// JSON writes a value as one chunk.
func (w *Writer) JSON(v any) error {
	data, err := encode(v)
	if err != nil {
		return permanent(drover.CodeInvalidInput, "a chunk cannot be written: %v", err)
	}
	return w.write(StreamMessage{Type: drover.ChunkJSON, Data: data})
}

// Bytes writes bytes as one chunk.
func (w *Writer) Bytes(data []byte) error {
	return w.write(StreamMessage{Type: drover.ChunkBytes, Data: append([]byte{}, data...)})
}

// Close ends the stream: its readers have all of it. It returns when everything
// is stored.
func (w *Writer) Close() error {
	if err := w.write(StreamMessage{End: true}); err != nil {
		return err
	}
	w.s.closed = true
	w.run.b.flush()
	return nil
}

func (w *Writer) write(m StreamMessage) error {
	w.run.b.enter()
	c := w.run.b.c
	switch {
	case w.err != nil:
		return w.err
	case w.s.closed:
		return permanent(drover.CodeConflict, "stream %q of program %s is closed: nothing can be written to it", w.s.id, c.def.name)
	case len(m.Data) > drover.MaxChunk:
		return permanent(drover.CodeTooLarge, "a chunk of stream %q has %d bytes, over the limit of %d: write it in parts", w.s.id, len(m.Data), drover.MaxChunk)
	}
	if c.trace != nil {
		c.trace(Op{Kind: EntryChunk, ID: w.s.id, Input: json.RawMessage(m.Data)})
	}
	w.s.number++
	m.Number = w.s.number
	if c.out.push(w.s, m) > maxBacklog {
		w.run.b.flush()
	}
	return nil
}

// flush waits until all is stored. No other branch runs meanwhile, as the order of
// branches may not depend on when that is. If it cannot be, or the drive is over,
// the branch ends here.
func (b *branch) flush() {
	if err := b.c.out.flush(); err != nil {
		b.c.dead = true
		panic(unwind{})
	}
}
