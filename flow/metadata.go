package flow

import (
	"github.com/droverhq/drover"
)

// Metadata is what a run shows of itself while it goes on: up to
// drover.MaxMetaKeys keys with JSON, drover.MaxMeta bytes of all. Everyone who may
// see the run may see it (drover status). A body changes that of its own run, and
// of the runs that it is a child of; each change is made once, whatever becomes of
// the process, in the order in which the body makes them.
//
// A change that does not fit what is there, or would be too much, is not made, and
// a note of that run says so. The errors of the methods are those of what can
// never be, and of a body that was stopped.
type Metadata struct {
	run    *Run
	target drover.MetaTarget
}

// Metadata is that of the run itself.
func (r *Run) Metadata() *Metadata { return &Metadata{r, drover.MetaSelf} }

// Parent is the metadata of the run that started this one; without one, its own.
func (r *Run) Parent() *Metadata { return &Metadata{r, drover.MetaParent} }

// Root is the metadata of the run that has no parent: that of the parent's parent,
// and so on; without one, its own.
func (r *Run) Root() *Metadata { return &Metadata{r, drover.MetaRoot} }

// Set sets a key to a value.
func (m *Metadata) Set(key string, value any) error { return m.change(drover.MetaSet, key, value) }

// Increment adds to a number. A key that is not there counts as 0.
func (m *Metadata) Increment(key string, by float64) error {
	return m.change(drover.MetaIncrement, key, by)
}

// Append adds one value to the end of an array. A key that is not there counts as
// an empty one.
func (m *Metadata) Append(key string, value any) error {
	return m.change(drover.MetaAppend, key, value)
}

// Remove removes a key.
func (m *Metadata) Remove(key string) error { return m.change(drover.MetaRemove, key, nil) }

// change asks for a change, and does not wait for it.
func (m *Metadata) change(how drover.MetaChange, key string, value any) error {
	m.run.b.enter()
	if err := m.run.b.scope.cancelled(); err != nil {
		return err
	}
	if key == "" || len(key) > drover.MaxMetaKey {
		return permanent(drover.CodeInvalidRequest, "key %q of metadata must have 1 to %d bytes", cut(key, 140), drover.MaxMetaKey)
	}
	change := drover.MetaOp{Op: how, Key: key}
	if how != drover.MetaRemove {
		data, err := encode(value)
		if err != nil || len(data) > drover.MaxMeta {
			return permanent(drover.CodeInvalidInput, "the value for key %q of metadata must be JSON of at most %d bytes; it has %d, %v", key, drover.MaxMeta, len(data), err)
		}
		change.Value = data
	}
	data, err := encode([]drover.MetaOp{change})
	if err != nil {
		return err
	}
	m.run.b.c.issue(&op{entry: drover.Entry{Kind: drover.EntryMeta, ID: string(m.target), Output: data}})
	return nil
}
