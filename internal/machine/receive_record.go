package machine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/droverhq/drover"
)

// ends are the ways in which a drive may end.
var ends = []drover.DriveStatus{
	drover.DriveWaiting, drover.DriveCompleted, drover.DriveFailed, drover.DriveCancelled, drover.DriveCompensated,
	drover.DriveCompensationFailed, drover.DrivePanicked, drover.DriveBlocked, drover.DriveAgain,
}

// checkRecord checks what a process says that drives a program, as far as that
// does not depend on the run.
func checkRecord(run drover.RunID, r *drover.RecordRequest) *drover.Error {
	const records, version, instance, keep = 1000, 64, 128, 256
	bad := ""
	switch {
	case r.Drive < 1 || r.Fence < 1:
		bad = "its drive and fence must be from 1"
	case r.At < 0 || r.Have < 0:
		bad = "at and have must not be negative"
	case len(r.Records) > records:
		bad = fmt.Sprintf("it has %d entries, more than %d: send them in several", len(r.Records), records)
	case r.Instance == "" || !subject(r.Instance, instance):
		bad = fmt.Sprintf("instance must say who drives, in 1 to %d bytes that a subject may have", instance)
	case !subject(r.Keep, keep) || strings.HasPrefix(r.Keep, "$"):
		bad = fmt.Sprintf("keep must be an inbox, in at most %d bytes", keep)
	case len(r.Version) > version || r.Version != "" && !functional(r.Version):
		bad = fmt.Sprintf("version must be at most %d letters, digits, - or _ with single dots between", version)
	case r.End != nil && !slices.Contains(ends, r.End.Status):
		bad = fmt.Sprintf("its end is %q, and must be one of %v", cut(string(r.End.Status), 60), ends)
	}
	if bad != "" {
		return drover.Errorf(drover.CodeInvalidRequest, "the record of run %s cannot be: %s", run, bad)
	}
	if r.End != nil && max(len(r.End.Result), len(r.End.Input)) > drover.MaxValue {
		return drover.Errorf(drover.CodeTooLarge, "the result or input with which a drive of run %s ends has more than %d bytes: give a reference", run, drover.MaxValue)
	}
	return nil
}

// subject reports whether text may be part of a subject that is published to.
func subject(text string, most int) bool {
	return len(text) <= most && !strings.ContainsAny(text, "*> \t\r\n") && !strings.Contains(text, "..") &&
		!strings.HasPrefix(text, ".") && !strings.HasSuffix(text, ".") &&
		!strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f })
}

func functional(version string) bool {
	_, err := drover.ParseFunctionName(version)
	return err == nil
}
