package partition

import (
	"time"

	"github.com/droverhq/drover/internal/machine"
)

// remember learns from a record which wake-up is durable. A run that was let go
// right after a record got its wake-up under the name of that.
func (r *run) remember(s *machine.State) {
	r.timer, r.timed, r.over = s.Timer, s.Timed, s.Terminal()
	if !r.over && s.Timer <= s.Now && s.Deadline() != 0 {
		r.timer, r.timed = 0, s.Applied
	}
}

// passes notes that the log has come to a time. A wake-up that is due by then has
// come, or is about to, and may have found nothing due: there is none to take back.
func (r *run) passes(at time.Time) {
	due := r.timer
	if due == 0 && r.state != nil {
		due = r.state.Deadline()
	}
	if due != 0 && !due.Time().After(at) {
		r.timer, r.timed = 0, 0
	}
}

// ends reports whether the record that is about to be written, or was just now,
// is the first that says that the run is over.
func (r *run) ends() bool { return r.state.Terminal() && !r.over }

// unschedule has the server forget the wake-up of a run that has just ended, which
// may be for years. What its deliveries need has names of its own.
func (p *Partition) unschedule(r *run) {
	if !r.ends() {
		return
	}
	if r.over = true; r.timed > 0 {
		p.do(&Op{Kind: OpUnschedule, Run: r.id, Seq: r.timed}, nil)
	}
	r.timer, r.timed = 0, 0
}
