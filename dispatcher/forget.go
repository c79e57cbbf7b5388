package dispatcher

import (
	"context"
	"time"

	"github.com/droverhq/drover/internal/machine"
)

const (
	// maxSweeping is how many runs are swept at a time.
	maxSweeping = 64
	// sweepTime is how long one may take: less than a run is kept after its end, so
	// that no sweep meets a new run that has the same id.
	sweepTime = 5 * time.Second
)

// forget removes what the earlier journals of a body have left in the bucket of
// values. It holds up nothing, and may be lost: what is left goes when the body
// begins anew the next time, or with the run.
func (d *Dispatcher) forget(e *machine.Effect) {
	run, dead := e.Run, e.Forget.Dead
	if !d.place(&d.sweeping, maxSweeping) {
		return
	}
	go func() {
		defer d.leave(&d.sweeping)
		ctx, cancel := context.WithTimeout(d.ends, sweepTime)
		defer cancel()
		if err := d.opts.Values.Sweep(ctx, run, dead); err != nil && d.ends.Err() == nil {
			d.quiet.Warn().Err(err).Str("run", string(run)).Msg("what a program that began anew has left behind could not be removed: it goes next time, or with the run")
		}
	}()
}
