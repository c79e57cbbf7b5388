package machine

import (
	"testing"
	"time"

	"github.com/droverhq/drover"
)

// A queue may lose a drive. Nobody says so, so a drive that nobody has begun is asked
// for again: the same one, in case the queue has it after all.
func TestPrograms02ADriveThatTheQueueLostIsAskedForAgain(t *testing.T) {
	t.Run("of no version", func(t *testing.T) {
		w := newProgram(t, "")
		w.wantEffects("drive 1 by program.order")
		if e := w.effect(EffectDrive); e.Again {
			t.Errorf("the first time: %s", show(e))
		}
		var pauses []time.Duration
		for range 5 {
			from := w.now
			w.wake()
			w.wantEffects("drive 1 by program.order")
			if e := w.effect(EffectDrive); !e.Again || !e.Drive.Partial {
				t.Errorf("%s", show(e))
			}
			pauses = append(pauses, w.now.Sub(from))
		}
		if pauses[0] != driveAgain || pauses[1] != 2*driveAgain || pauses[4] != 8*driveAgain {
			t.Errorf("after %v", pauses)
		}
		w.driven().say(stepped("a", `1`))
		if g := w.s.Program; g.Drive != 1 || g.Idle > 1 {
			t.Errorf("%s", w.record)
		}
	})
	t.Run("of a version that somebody serves", func(t *testing.T) {
		w := versioned(t, "")
		drives := 0
		for range 10 {
			w.wake()
			for _, e := range w.last.Effects {
				if e.Kind == EffectDrive {
					drives++
					if e.Attempt != 2 || !e.Again {
						t.Errorf("%s", show(e))
					}
				}
			}
		}
		if drives == 0 || w.s.Program.Version != "v1" {
			t.Errorf("asked for %d times; %s", drives, w.record)
		}
		d := w.driven()
		d.version = "v1"
		d.end(drover.DriveCompleted)
		w.wantStatus(drover.StatusCompleted)
	})
}
