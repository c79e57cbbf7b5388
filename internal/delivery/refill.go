package delivery

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/droverhq/drover"
)

const (
	lowWater   = 64                     // jobs in the queue, from which on more are looked for
	maxLooks   = 8                      // searches of the list at once
	loaders    = 16                     // records that one reads at once
	usual      = 2 << 10                // bytes that a job costs
	maxLoaded  = 4 << 20                // bytes that one reads, and what the last few had
	maxSeen    = 1 << 20                // deliveries of an episode
	candidates = 512                    // of which one may be a canary
	lookPause  = 500 * time.Millisecond // before the list is read again that had nothing
	fullPause  = 250 * time.Millisecond // before it is where there was no room
	errorPause = time.Second            // before it is where that failed
	settleTime = 2 * time.Second        // for what was just told to be in the list
)

// episode is a time in which the list may have something for a target: since
// somebody is there again, or since there was no room. In it each delivery is
// attempted once; after that its record says when.
type episode struct {
	loose time.Time // the last that may not be in the list yet
	next  time.Time // the list is read again then

	mu   sync.Mutex
	seed maphash.Seed
	seen map[uint64]struct{}
}

// note reports whether a delivery was not seen in the episode before. A hash that
// two of them share has the second one wait for its time.
func (e *episode) note(id drover.DeliveryID) bool {
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	hash := maphash.String(e.seed, string(id))
	_, seen := e.seen[hash]
	e.seen[hash] = struct{}{}
	return !seen
}

func (e *episode) forget(id drover.DeliveryID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.seen, maphash.String(e.seed, string(id)))
}

func (e *episode) size() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.seen)
}

// seek has the list read for a target.
func (d *Deliverer) seek(t *target, now, at time.Time) {
	if t.episode == nil {
		t.episode = &episode{next: at, seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}}
	}
	t.episode.loose = now
	d.touch(t)
}

// refill reads the list where the queue has room for what is there.
func (d *Deliverer) refill(t *target, now time.Time) {
	e := t.episode
	switch {
	case e == nil || t.looking || now.Before(e.next) || len(t.queue) > lowWater:
	case d.places(t) > 0:
		d.look(t)
	case t.flying == 0: // else their end wakes it
		e.next = now.Add(fullPause)
	}
}

// places is for about how many jobs of a usual size there is room.
func (d *Deliverer) places(t *target) int {
	free := d.free(t)
	if t.held == 0 || free >= usual {
		return max(1, min(maxQueued-len(t.queue), free/2/usual))
	}
	return 0
}

// looked is what a search of the list found.
type looked struct {
	target  *target
	episode *episode // nil: a canary was looked for
	jobs    []*Job
	more    bool
	err     error
}

// look searches the list for a target, as soon as not too many others do.
func (d *Deliverer) look(t *target) {
	t.looking = true
	if d.looks >= maxLooks {
		d.lookers = append(d.lookers, t)
		return
	}
	d.looks++
	l := &looked{target: t}
	task := d.candidate(l, t.canary)
	if !t.away {
		l.episode = t.episode
		task = d.fill(l, max(1, d.places(t)))
	}
	d.spawn(func(ctx context.Context) {
		task(ctx)
		d.tell(event{looked: l})
	})
}

// nextLookers has targets that wait for a search go on. Whether one still wants it
// shows then.
func (d *Deliverer) nextLookers() {
	n := min(maxLooks-d.looks, len(d.lookers))
	for _, t := range d.lookers[:n] {
		t.looking = false
		d.touch(t)
	}
	if d.lookers = d.lookers[n:]; len(d.lookers) == 0 {
		d.lookers = nil
	}
}

// takeLooked takes what a search found.
func (d *Deliverer) takeLooked(l *looked, now time.Time) {
	t := l.target
	t.looking = false
	d.touch(t)
	d.looks--
	if l.err != nil {
		d.opts.Logger.Warn().Err(l.err).Str("to", t.notify.To()).Msg("deliveries that wait were not read; trying again")
	}
	switch {
	case l.episode == nil && t.away:
		d.takeCandidate(t, l, now)
	case l.episode != nil && l.episode == t.episode:
		d.takeListed(t, l, now)
	}
}

// takeCandidate takes the job that is to be the canary; with none, nothing is
// pending any more.
func (d *Deliverer) takeCandidate(t *target, l *looked, now time.Time) {
	switch {
	case l.err != nil:
		t.checked, t.probeAt = now, now.Add(errorPause)
	case len(l.jobs) == 0:
		d.unwatch(t)
	case d.again(l.jobs[0]): // its run has not heard of it yet
		t.checked, t.probeAt = now, now.Add(probePause)
	case t.canary != nil && t.canary.ID == l.jobs[0].ID, d.known[l.jobs[0].ID] == nil:
		d.setCanary(t, l.jobs[0], now)
	default: // an attempt of it is under way
		t.checked, t.probeAt = now, now.Add(probePause)
	}
}

// takeListed queues what was listed.
func (d *Deliverer) takeListed(t *target, l *looked, now time.Time) {
	e := t.episode
	e.next = now
	for _, j := range l.jobs {
		switch {
		case d.again(j), d.known[j.ID] != nil:
		case d.room(t, j):
			d.enqueue(t, j, now)
		default:
			e.forget(j.ID)
			e.next = now.Add(fullPause)
		}
	}
	switch {
	case l.err != nil:
		e.next = now.Add(errorPause)
	case e.size() > maxSeen:
		t.episode = nil
	case len(l.jobs) == 0 && !l.more:
		if e.next = now.Add(lookPause); now.Sub(e.loose) > settleTime {
			t.episode = nil
		}
	}
}

// fill looks for so many deliveries that were not seen in the episode.
func (d *Deliverer) fill(l *looked, most int) func(context.Context) {
	return func(ctx context.Context) {
		var found []listed
		l.err = d.opts.Source.Listed(ctx, l.target.key, func(run drover.RunID, i int) bool {
			if len(found) == most {
				l.more = true
				return false
			}
			if l.episode.note(drover.DeliveryIDOf(run, i)) {
				found = append(found, listed{run, i})
			}
			return true
		})
		size := 0
		for len(found) > 0 && size < maxLoaded && l.err == nil {
			part := found[:min(loaders, len(found))]
			found = found[len(part):]
			size += d.load(ctx, l, part)
		}
		l.more = l.more || len(found) > 0
		for _, f := range found {
			l.episode.forget(drover.DeliveryIDOf(f.run, f.subscriber))
		}
	}
}

// listed is a delivery that the list has.
type listed struct {
	run        drover.RunID
	subscriber int
}

// load reads some deliveries at once, and gives what they cost.
func (d *Deliverer) load(ctx context.Context, l *looked, part []listed) int {
	jobs, errs := make([]*Job, len(part)), make([]error, len(part))
	var wait sync.WaitGroup
	for i, f := range part {
		wait.Go(func() { jobs[i], errs[i] = d.opts.Source.Load(ctx, f.run, f.subscriber) })
	}
	wait.Wait()
	size := 0
	for i, j := range jobs {
		if errs[i] != nil {
			l.err = errs[i]
			l.episode.forget(drover.DeliveryIDOf(part[i].run, part[i].subscriber))
		} else if j != nil {
			l.jobs = append(l.jobs, j)
			size += cost(j)
		}
	}
	return size
}

// candidate looks for a delivery that is pending: that of the old canary, or else
// another.
func (d *Deliverer) candidate(l *looked, old *Job) func(context.Context) {
	return func(ctx context.Context) {
		var found []listed
		if old != nil {
			if _, i, err := drover.ParseDeliveryID(string(old.ID)); err == nil {
				found = append(found, listed{old.Run, i})
			}
		}
		if d.first(ctx, l, found); len(l.jobs) > 0 || l.err != nil {
			return
		}
		found = nil
		l.err = d.opts.Source.Listed(ctx, l.target.key, func(run drover.RunID, i int) bool {
			found = append(found, listed{run, i})
			return len(found) < candidates
		})
		if l.err == nil {
			d.first(ctx, l, found)
		}
	}
}

// first reads deliveries until one is pending.
func (d *Deliverer) first(ctx context.Context, l *looked, found []listed) {
	for _, f := range found {
		j, err := d.opts.Source.Load(ctx, f.run, f.subscriber)
		if err != nil {
			l.err = err
			return
		}
		if j != nil {
			l.jobs = []*Job{j}
			return
		}
	}
}
