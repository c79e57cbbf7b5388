package flowtest

import (
	"context"
	"errors"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/internal/machine"
)

// errCrash is the death of the process that drives.
var errCrash = errors.New("flowtest: the process died")

// live is the transport of a run in memory.
type live struct{ *world }

// Record folds a record. Where the process dies after each, that is after it was
// taken and before it is answered.
func (l live) Record(_ context.Context, _ drover.RunID, m *drover.RecordRequest) (*drover.RecordReply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.env.eager {
		l.perform()
	}
	if l.env.crash && len(m.Records) > 1 {
		one := *m
		one.Records, one.End = m.Records[:1], nil
		m = &one
	}
	step := l.apply(&machine.Command{Verb: drover.VerbRecord, Record: m})
	if step.Refused != nil {
		return nil, step.Refused
	}
	if l.env.crash {
		if step = l.haunt(m); step.Refused != nil {
			return nil, step.Refused
		}
	}
	if l.end = nil; m.End != nil && m.End.Status != drover.DriveWaiting {
		l.end = m.End
	}
	if l.env.crash && len(m.Records) > 0 && !l.state.Terminal() && l.state.Program.State == machine.DriveRunning {
		return nil, errCrash
	}
	reply, ok := step.Answer.(drover.RecordReply)
	if !ok {
		return nil, drover.Errorf(drover.CodeInternal, "a record was answered with %T", step.Answer)
	}
	return &reply, nil
}

// haunt has what a process sends twice come twice, as when its answer was lost,
// and what the dead process before it sent last come once more. Neither may change
// anything.
func (l live) haunt(m *drover.RecordRequest) machine.Step {
	before := l.state.Program.Records
	if old := l.ghost; old != nil && old.Fence < m.Fence && old.Drive == m.Drive {
		if step := l.apply(&machine.Command{Verb: drover.VerbRecord, Record: old}); step.Refused == nil && !l.state.Terminal() {
			l.tb.Errorf("flowtest: a process that is dead was heard: it recorded for drive %d (%d)", old.Drive, old.Fence)
		}
	}
	step := l.apply(&machine.Command{Verb: drover.VerbRecord, Record: m})
	if l.state.Program.Generation == 0 && l.state.Program.Records != before {
		l.tb.Errorf("flowtest: a command that came twice recorded twice: %d records became %d", before, l.state.Program.Records)
	}
	l.ghost = m
	return step
}

// Journal reads the journal.
func (l live) Journal(_ context.Context, run drover.RunID, from int) (*drover.JournalReply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.state.Program
	return &drover.JournalReply{RunID: run, Input: l.load(l.state.Input), Records: g.Records, Entries: g.Entries, Journal: l.journal(from)}, nil
}

// finished is the transport of a body whose journal is complete: it may say
// nothing but its end.
type finished struct {
	journal *drover.JournalReply
	tails   func(id string) flow.StreamTail
	extra   []drover.Entry // that it wanted to record
	end     *drover.DriveEnd
}

func (f *finished) Record(_ context.Context, run drover.RunID, m *drover.RecordRequest) (*drover.RecordReply, error) {
	f.extra = append(f.extra, m.Records...)
	f.end = m.End
	idle := len(m.Records) == 0 && m.End == nil // it says no more than that it drives
	return &drover.RecordReply{RunID: run, Records: m.At + len(m.Records), Entries: f.journal.Entries, Driving: idle}, nil
}

func (f *finished) Journal(context.Context, drover.RunID, int) (*drover.JournalReply, error) {
	return f.journal, nil
}
