package delivery

import (
	"container/list"
	"time"

	"github.com/droverhq/drover"
)

const (
	probePause    = 400 * time.Millisecond // between two probes of a target
	maxProbePause = 800 * time.Millisecond // of a URL, which it costs more to ask: there within a second
	presence      = 500 * time.Millisecond // a request that was not refused for so long has reached somebody
	recheck       = 30 * time.Second       // a canary is read again from its record
	probeGap      = time.Millisecond       // between the probes of a worker, on average
	probeBytes    = 4 << 20                // of probes in a second
)

// watch is what is known of a target where nobody was found. Until the first probe
// of a target that was found in the list has ended, absent is nil, and its queue
// waits for that.
type watch struct {
	away    bool
	absent  *drover.Error // says so
	canary  *Job          // its probe is made again and again; nil: one is looked for
	probe   *attempt      // that is under way
	probeAt time.Time     // the next one; while one is under way, when it has reached somebody
	pause   time.Duration
	checked time.Time     // the canary was pending
	place   *list.Element // among those that are away
}

// takeFound takes a job that is listed.
func (d *Deliverer) takeFound(j *Job, now time.Time) {
	t := d.targetOf(j)
	switch {
	case d.again(j):
		d.seek(t, now, now)
	case t.away:
		if t.canary == nil && d.known[j.ID] == nil {
			d.setCanary(t, j, now)
		}
	case t.idle():
		d.watchFor(t, j, nil, now)
		t.probeAt = d.pace(now, 0, j)
	default:
		d.seek(t, now, now)
	}
}

// goAway notes that nobody is there. What is queued is told so.
func (d *Deliverer) goAway(t *target, j *Job, why *drover.Error, now time.Time) {
	if t.away {
		return
	}
	t.episode = nil
	d.watchFor(t, j, why, now)
	t.probeAt = d.pace(now, t.wait(), j)
	d.flush(t)
}

// watchFor has a canary wait for somebody to be there.
func (d *Deliverer) watchFor(t *target, j *Job, why *drover.Error, now time.Time) {
	t.away, t.absent, t.pause = true, why, 0
	t.place = d.away.PushBack(t)
	d.setCanary(t, j, now)
	for d.canaries > maxCanaries && d.away.Front() != t.place {
		d.unwatch(d.away.Front().Value.(*target))
	}
}

func (d *Deliverer) setCanary(t *target, j *Job, now time.Time) {
	d.dropCanary(t)
	t.canary, t.checked = j, now
	d.canaries += cost(j)
	d.known[j.ID] = j
}

func (d *Deliverer) dropCanary(t *target) {
	if t.canary != nil {
		d.canaries -= cost(t.canary)
		delete(d.known, t.canary.ID)
		t.canary = nil
	}
}

// unwatch takes a target as one that is there. A probe that is under way goes on
// as any attempt.
func (d *Deliverer) unwatch(t *target) {
	if j := t.canary; t.probe != nil {
		d.dropCanary(t)
		d.known[j.ID] = j
		t.held += cost(j)
		d.held += cost(j)
	}
	d.dropCanary(t)
	d.away.Remove(t.place)
	t.watch = watch{}
	d.touch(t)
}

// back has a target get all that it missed, besides what its canary has just
// brought.
func (d *Deliverer) back(t *target, now time.Time) {
	id := t.canary.ID
	d.unwatch(t)
	d.seek(t, now, now)
	t.episode.note(id)
}

// flush tells everything in the queue that nobody is there.
func (d *Deliverer) flush(t *target) {
	for _, q := range t.queue {
		t.queued -= cost(q.job)
		d.release(t, q.job)
		d.hear(q.job, verdict{unmade: true, err: t.absent})
	}
	t.queue = nil
}

// stillAway tells a job that nobody is there.
func (d *Deliverer) stillAway(t *target, j *Job, now time.Time) {
	own := t.canary != nil && t.canary.ID == j.ID
	if d.known[j.ID] != nil && !own {
		return // under way
	}
	d.hear(j, verdict{unmade: true, err: t.absent})
	if t.canary == nil || own && t.probe == nil {
		d.setCanary(t, j, now)
	}
}

// watchOver does what there is to do for a target that is away.
func (d *Deliverer) watchOver(t *target, now time.Time) {
	switch {
	case t.looking || now.Before(t.probeAt):
	case t.probe != nil:
		if t.kind != "url" {
			d.back(t, now)
		}
	case t.canary == nil || now.Sub(t.checked) > recheck:
		d.look(t)
	default:
		t.probe = d.begin(t, []*Job{t.canary}, now)
		t.probeAt = now.Add(presence)
		if t.kind == "url" {
			t.probeAt = time.Time{} // it ends by itself
		}
	}
}

// probed takes how a probe went.
func (d *Deliverer) probed(t *target, v verdict, now time.Time) {
	j := t.canary
	t.probe = nil
	switch {
	case v.absent():
		t.absent = v.err
		if !d.draining {
			t.probeAt = d.pace(now, t.wait(), j)
			d.flush(t)
		}
	case v.unmade && v.err != nil: // says nothing of whether anybody is there
		d.dropCanary(t)
		d.hear(j, v)
		t.probeAt = now
	default:
		d.made.note(j, v)
		d.hear(j, v)
		d.back(t, now)
	}
}

// wait is how long the next probe waits.
func (t *target) wait() time.Duration {
	if t.kind == "url" {
		t.pause = min(max(2*t.pause, probePause), maxProbePause)
		return t.pause
	}
	return probePause
}

// pace gives when a probe may be made: after a pause, and later where all probes
// of the worker would be too many, or too big.
func (d *Deliverer) pace(now time.Time, pause time.Duration, j *Job) time.Time {
	at := now.Add(pause)
	if at.Before(d.probes) {
		at = d.probes
	}
	if d.probes.Before(now) {
		d.probes = now
	}
	d.probes = d.probes.Add(max(probeGap, time.Duration(len(j.Body))*time.Second/probeBytes))
	return at
}
