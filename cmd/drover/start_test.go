package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/droverhq/drover"
)

func TestDelivery01StartNamesWhoIsTold(t *testing.T) {
	f := newFleet(t)
	f.answers("start", drover.StartReply{RunID: "r_1", Created: true})
	status, _, stderr := f.cli("", "start", "--workflow", "w", "--run", "r_1", "--notify", "a", "--notify", "b",
		"--notify-stream", "c", "--notify-url", "https://d/e", "--notify-function", "f", "--inline")
	want := `{"run_id":"r_1","workflow":"w","notify":[{"subject":"a","inline":true},{"subject":"b","inline":true},` +
		`{"stream_subject":"c","inline":true},{"url":"https://d/e","inline":true},{"function":"f","inline":true}]}`
	if got := f.got("start"); status != 0 || got != want {
		t.Errorf("exit status %d, asked %s\n%s", status, got, stderr)
	}
	if status, _, stderr := f.cli("", "start", "--workflow", "w", "--inline"); status != exitUsage || !strings.Contains(stderr, "--notify-url") {
		t.Errorf("--inline alone: exit status %d\n%s", status, stderr)
	}
}

func TestDelivery04StartTakesTheOutcomeThatItPrints(t *testing.T) {
	for name, c := range map[string]struct {
		consume any
		warning string
	}{
		"taken": {drover.HoldReply{RunID: "r_1"}, ""},
		"late":  {drover.Errorf(drover.CodeConflict, "its subscribers are told"), "warning: others may be told as well"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			f.answers("start", drover.StartReply{RunID: "r_1", Created: true, Inline: true})
			f.answers("result", drover.ResultReply{RunID: "r_1", Status: drover.StatusCancelled})
			f.answers("status", drover.StatusReply{Run: drover.Run{ID: "r_1", Status: drover.StatusCancelled}})
			f.answers("consume", c.consume)
			status, stdout, stderr := f.cli("", "start", "--workflow", "w", "--wait", "--notify", "a", "--inline")
			if status != exitCancelled || !strings.Contains(stdout, `"status": "cancelled"`) || !strings.Contains(stderr, "run r_1") {
				t.Errorf("exit status %d\n%s\n%s", status, stdout, stderr)
			}
			if warned := strings.Contains(stderr, "warning:"); warned != (c.warning != "") || !strings.Contains(stderr, c.warning) {
				t.Errorf("standard error\n%s", stderr)
			}
			var start drover.StartRequest
			var consume drover.WaiterRequest
			if json.Unmarshal([]byte(f.got("start")), &start) != nil || json.Unmarshal([]byte(f.got("consume")), &consume) != nil ||
				start.Hold == nil || start.Hold.Waiter == "" || start.Hold.Waiter != consume.Waiter {
				t.Errorf("asked %s and %s", f.got("start"), f.got("consume"))
			}
		})
	}
}

func TestDelivery06StartThatIsInterruptedGivesUp(t *testing.T) {
	f := newFleet(t)
	f.answers("start", drover.StartReply{RunID: "r_1", Created: true, Inline: true})
	f.answers("result", drover.ResultReply{RunID: "r_1", Status: drover.StatusRunning})
	f.answers("release", drover.HoldReply{RunID: "r_1"})
	status, stdout, stderr := f.cli("", "start", "--workflow", "w", "--run", "r_1", "--wait", "--timeout", "200ms", "--notify", "a", "--inline")
	if status != exitFailed || stdout != "" || !strings.Contains(stderr, "run r_1 is not over after 200ms") {
		t.Errorf("exit status %d\n%s\n%s", status, stdout, stderr)
	}
	if got := f.got("release"); !strings.Contains(got, `"run_id":"r_1"`) {
		t.Errorf("released %q", got)
	}
}
