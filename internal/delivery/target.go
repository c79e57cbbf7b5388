package delivery

import (
	"time"

	"github.com/droverhq/drover"
)

// The bounds. All but the number of jobs are in bytes, of which each job costs
// its body and overhead.
const (
	maxQueued   = 1024     // jobs in the queue of a target
	maxQueue    = 8 << 20  // of a target
	maxHeld     = 64 << 20 // of all targets, queued and under way
	maxShared   = 32 << 20 // of it, whoever comes first; the rest is for those that have little
	little      = 32 << 10 // of a target
	maxMailbox  = 32 << 20 // that the loop has not read yet
	maxCanaries = 16 << 20 // of the canaries of all targets that are away
	overhead    = 1 << 10  // of a job
	maxSpare    = 16 << 10 // events that the mailbox keeps room for

	maxFlying  = 64   // attempts under way to one target
	maxStored  = 256  // those to one stream subject, whose receipts come from a server
	maxBatches = 16   // those with several outcomes
	maxPosts   = 8    // those to one URL
	allPosts   = 1024 // and to all URLs, but for one each
)

// cost is what a job counts in bounds of bytes.
func cost(j *Job) int { return len(j.Body) + overhead }

// target is one subscriber, for as long as there is something to do for it.
type target struct {
	key     string
	notify  drover.Notify // of its first job: what makes the key is the same in all
	kind    string
	wrong   *drover.Error // nothing may be sent to it
	queue   []queued
	queued  int // cost of the queue
	held    int // cost of the queue and of what is under way
	flying  int
	alarm   alarm
	dirty   bool
	looking bool // the list is searched for it, or will be

	watch            // where it is away
	episode *episode // where the list may have something for it
}

// queued is a job that waits for its turn.
type queued struct {
	job *Job
	at  time.Time
}

// targetOf gives the target of a job.
func (d *Deliverer) targetOf(j *Job) *target {
	key := Target(&j.Notify)
	t := d.targets[key]
	if t == nil {
		t = &target{key: key, notify: j.Notify, kind: j.Notify.Kind()}
		t.alarm.target = t
		if subject := j.Notify.Subject + j.Notify.StreamSubject; subject != "" {
			t.wrong = drover.AsError(d.opts.Names.Foreign(subject), drover.CodeForbidden)
		}
		d.targets[key] = t
	}
	d.touch(t)
	return t
}

// touch has a target looked at before the loop sleeps.
func (d *Deliverer) touch(t *target) {
	if !t.dirty {
		t.dirty = true
		d.dirty = append(d.dirty, t)
	}
}

// take queues a job, or says at once that it cannot be delivered now.
func (d *Deliverer) take(j *Job, now time.Time) {
	t := d.targetOf(j)
	switch {
	case d.again(j):
	case t.away && t.absent != nil:
		d.stillAway(t, j, now)
	case d.known[j.ID] != nil:
	case !d.room(t, j):
		d.busy(t, j, now)
	default:
		d.enqueue(t, j, now)
	}
}

func (d *Deliverer) enqueue(t *target, j *Job, now time.Time) {
	t.queue = append(t.queue, queued{j, now})
	t.queued += cost(j)
	t.held += cost(j)
	d.held += cost(j)
	d.known[j.ID] = j
	t.episode.note(j.ID)
}

// room reports whether a job may be queued. The first of a target may have any
// size.
func (d *Deliverer) room(t *target, j *Job) bool {
	switch {
	case len(t.queue) >= maxQueued || len(t.queue) > 0 && t.queued+cost(j) > maxQueue:
		return false
	case t.held == 0:
		return d.held+cost(j) <= maxHeld
	}
	return cost(j) <= d.free(t)
}

// free is how many bytes a target may add: as many as it leaves to others, and
// whatever those have, a little. So a thousand that are slow leave room for whoever
// comes next.
func (d *Deliverer) free(t *target) int {
	return max(maxShared-d.held-t.held, min(little-t.held, maxHeld-d.held))
}

// busy tells that a job has no room. It comes again from the list.
func (d *Deliverer) busy(t *target, j *Job, now time.Time) {
	if d.known[j.ID] != nil {
		return
	}
	d.hear(j, verdict{unmade: true, err: drover.Errorf(drover.CodeUnavailable,
		"the worker has more deliveries under way than it may keep, to %s or to others: this one comes later", where(&j.Notify))})
	if !t.away {
		d.seek(t, now, now.Add(fullPause))
	}
}

// release forgets a job that has left the queue and is not under way any more.
func (d *Deliverer) release(t *target, j *Job) {
	t.held -= cost(j)
	d.held -= cost(j)
	delete(d.known, j.ID)
}

// goOn does what there is to do for a target now, and sees to it that it is looked
// at again when there is more.
func (d *Deliverer) goOn(t *target, now time.Time) {
	if t.away {
		d.watchOver(t, now)
	} else {
		d.pump(t, now)
		d.refill(t, now)
	}
	if t.idle() {
		d.forget(t)
		return
	}
	if at := d.next(t); at.IsZero() {
		d.alarms.cancel(&t.alarm)
	} else {
		d.alarms.set(&t.alarm, at)
	}
}

// idle reports whether there is nothing to remember of a target.
func (t *target) idle() bool {
	return !t.away && len(t.queue) == 0 && t.flying == 0 && t.episode == nil && !t.looking
}

func (d *Deliverer) forget(t *target) {
	d.alarms.cancel(&t.alarm)
	delete(d.targets, t.key)
}

// next is when a target must be looked at, whatever happens; zero: when something
// happens to it.
func (d *Deliverer) next(t *target) time.Time {
	var at time.Time
	sooner := func(other time.Time) {
		if at.IsZero() || other.Before(at) {
			at = other
		}
	}
	switch {
	case t.looking:
	case t.away:
		return t.probeAt
	case t.episode != nil && len(t.queue) <= lowWater && (t.flying == 0 || d.places(t) > 0):
		sooner(t.episode.next)
	}
	if b := t.notify.Batch; b != nil && len(t.queue) > 0 && !t.away && t.flying < maxBatches {
		sooner(t.queue[0].at.Add(time.Duration(b.Wait)))
	}
	return at
}

// pump begins as many attempts as may be under way.
func (d *Deliverer) pump(t *target, now time.Time) {
	for len(t.queue) > 0 && t.flying < d.window(t) {
		n := t.ready(now, int(d.opts.Conn.MaxPayload()))
		if n == 0 {
			return
		}
		d.begin(t, t.leave(n), now)
	}
	if len(t.queue) == 0 {
		t.queue = nil
	}
}

// window is how many attempts to a target may be under way.
func (d *Deliverer) window(t *target) int {
	switch {
	case t.kind == "url":
		return max(1, min(maxPosts, allPosts-d.posts))
	case t.kind == "stream_subject":
		return maxStored
	case t.notify.Batch != nil:
		return maxBatches
	}
	return maxFlying
}

// leave takes the next jobs out of the queue.
func (t *target) leave(n int) []*Job {
	jobs := make([]*Job, n)
	for i, q := range t.queue[:n] {
		jobs[i] = q.job
		t.queue[i] = queued{}
		t.queued -= cost(q.job)
	}
	t.queue = t.queue[n:]
	return jobs
}
