package flow

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/droverhq/drover"
)

// Run is how a body asks for what is not the same each time. Each branch has its
// own, and only it may use that.
type Run struct {
	b    *branch
	undo *undoList
}

// Info is what a body may know of its run.
type Info struct {
	ID        drover.RunID
	Program   string
	Version   string // that the run keeps while somebody serves it; of another process it may be another
	Drive     int    // from 1
	Replaying bool   // the journal has more of what the body did
	Stopping  bool   // it was asked to stop
	Parent    *drover.CallID
	Tags      map[string]string
	Started   time.Time
}

// Info tells of the run. Drive and Replaying are not the same in every drive:
// they are for logs.
func (r *Run) Info() Info {
	r.b.enter()
	c := r.b.c
	return Info{
		ID: c.req.RunID, Program: c.def.name, Version: c.req.Version, Drive: c.req.Drive, Replaying: len(c.journal) > 0,
		Stopping: c.stop != nil, Parent: c.req.Parent, Tags: c.req.Tags, Started: c.req.Started,
	}
}

// Context ends when the run was asked to stop, when this branch is cancelled, and
// when the body leaves the process.
func (r *Run) Context() context.Context { return r.b.scope.ctx }

// Now is the time of the latest entry of the journal that the body has come to.
func (r *Run) Now() time.Time {
	r.b.enter()
	return r.b.c.now
}

// Rand gives chance that is the same in every drive. It is the run's, for all
// branches.
func (r *Run) Rand() *rand.Rand {
	r.b.enter()
	return r.b.c.rand
}

// UUID gives a random UUID (version 4) that is the same in every drive.
func (r *Run) UUID() string {
	r.b.enter()
	var u [16]byte
	_, _ = r.b.c.uuid.Read(u[:])
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	s := hex.EncodeToString(u[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// Patched marks a change of the body: it is true where the run has not come by
// here before, and in every later drive of it; false where it has, by the body as
// it was before the change. Once no run of that is left, the mark may become
// unconditional, but must stay while runs that have it are not over.
//
// id is that of the change. Marks of one change have the same, as in a loop, and all
// of them give what the first one gave; what a step or a node has for its id does not
// matter. One that no id may be panics.
func (r *Run) Patched(id string) bool {
	r.b.enter()
	c := r.b.c
	if checkID(id) != nil {
		panic(badID(id, c.def.name).Error())
	}
	if was, known := c.patches[id]; known {
		return was
	}
	if r.b.scope.cancelled() != nil {
		return false
	}
	c.patches[id] = c.ahead(id) || !c.passed()
	if c.patches[id] {
		c.issue(&op{entry: drover.Entry{Kind: drover.EntryValue, ID: id, Output: json.RawMessage("true")}})
	}
	return c.patches[id]
}

// ContinueAsNew gives the error that a body returns to begin anew with another
// input and an empty journal, as the same run. Nodes that are open are cancelled,
// nothing is undone.
func (r *Run) ContinueAsNew(input any) error {
	r.b.enter()
	data, err := encode(input)
	if err != nil {
		return permanent(drover.CodeInvalidInput, "program %s cannot begin anew with this input: %v", r.b.c.def.name, err)
	}
	return &againError{input: data}
}

// main is the first branch: the body, and what comes after it.
func (c *core) main(run *Run) {
	out, err := c.def.body(run, c.req.Input)
	run.b.alive()
	c.endBranches(run.b)
	var again *againError
	switch {
	case c.failure != nil:
		c.end = c.failed(run, c.failure)
	case err == nil:
		c.end = &drover.DriveEnd{Status: drover.DriveCompleted, Result: out}
	case errors.As(err, &again):
		c.end = &drover.DriveEnd{Status: drover.DriveAgain, Input: again.input}
	default:
		c.end = c.failed(run, wire(err))
	}
	c.ended()
}

// ended tells a test how the body ended.
func (c *core) ended() {
	if c.trace != nil {
		c.trace(Op{Kind: EntryEnd, ID: string(c.end.Status), Input: c.end.Result})
	}
}

// endBranches cancels the branches that nobody joined, and waits for them.
func (c *core) endBranches(self *branch) {
	why := drover.Errorf(drover.CodeStopped, "the body of program %s has returned", c.def.name)
	for _, b := range c.branches {
		if b != self {
			c.cancel(b.scope, why, false)
		}
	}
	for len(c.branches) > 1 {
		c.idle = self
		self.block()
	}
}

// failed undoes what the body did, and says how the run ends.
func (c *core) failed(run *Run, err *drover.Error) *drover.DriveEnd {
	count := len(run.undo.list)
	bad := run.rollBack()
	if c.failure != nil { // the journal had that meanwhile
		err = c.failure
	}
	said := *err
	end := &drover.DriveEnd{Error: &said}
	switch {
	case len(bad) > 0:
		end.Status = drover.DriveCompensationFailed
		end.Error.Message = cut(end.Error.Message+"; and what it did could not be undone: "+join(bad), maxMessage)
	case count > 0:
		end.Status = drover.DriveCompensated
	case c.stop != nil && c.failure == nil:
		end.Status = drover.DriveCancelled
	default:
		end.Status = drover.DriveFailed
	}
	return end
}
