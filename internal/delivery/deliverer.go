package delivery

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/droverhq/drover"
)

// Deliverer makes the attempts of one worker. Deliver and Found may be called by
// any number of goroutines, before Run as well; what comes after Run has ended is
// dropped.
type Deliverer struct {
	opts  Options
	inbox inbox
	news  chan struct{} // the mailbox is not empty

	mu      sync.Mutex
	mailbox []event
	unread  int // cost of the jobs in it
	over    bool

	// All that follows belongs to the goroutine of Run.

	spare    []event // the mailbox that was read before
	spawn    func(task func(context.Context))
	targets  map[string]*target
	known    map[drover.DeliveryID]*Job // queued, under way, or a canary
	made     made
	dirty    []*target // to be looked at
	alarms   alarms
	held     int // cost of what is queued or under way
	flying   int // attempts under way
	posts    int // those to URLs
	looks    int // searches of the list under way
	lookers  []*target
	away     *list.List // the targets that are away, the longest first
	canaries int        // cost of their canaries
	probes   time.Time  // when their rate has room again
	draining bool
}

// event is something that the loop is told: an attempt that ended, or else what
// was found in the list, or else a job.
type event struct {
	ended   *attempt
	looked  *looked
	job     *Job
	found   bool // the job is listed
	refused bool // there was no room for the body of the job
}

// New makes a Deliverer, which does nothing before Run.
func New(opts Options) *Deliverer {
	if opts.DrainTimeout <= 0 {
		opts.DrainTimeout = defaultDrain
	}
	return &Deliverer{
		opts:    opts,
		inbox:   newInbox(opts.Conn),
		news:    make(chan struct{}, 1),
		targets: map[string]*target{},
		known:   map[drover.DeliveryID]*Job{},
		away:    list.New(),
	}
}

// Deliver makes an attempt as soon as its target has room, and tells by
// Options.Heard how it went. It never blocks. A delivery that is queued or under
// way already is not made twice. The job must not be changed any more.
func (d *Deliverer) Deliver(j *Job) { d.tell(event{job: j}) }

// Found hands over one delivery that the list has for a target, as when a
// partition was taken over. The target is asked with it at once, and if somebody
// is there, all else that is listed for the target follows. One job for each
// target is enough.
func (d *Deliverer) Found(j *Job) { d.tell(event{job: j, found: true}) }

// tell puts an event into the mailbox of the loop.
func (d *Deliverer) tell(e event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return
	}
	if e.job != nil {
		if d.unread+cost(e.job) > maxMailbox {
			bare := *e.job
			bare.Body, bare.Outcome = nil, nil
			e.job, e.refused = &bare, true
		}
		d.unread += cost(e.job)
	}
	d.mailbox = append(d.mailbox, e)
	select {
	case d.news <- struct{}{}:
	default:
	}
}

// Run makes attempts until ctx ends. Then those under way get Options.DrainTimeout
// to end, and are heard; all else is dropped without a word, for the records have
// times for it. To tell of it would cost a write or two for each, and would not make
// it come earlier: a record that hears that nobody was there waits as well. It may be called once. The error is nil but where the connection takes no
// subscription.
func (d *Deliverer) Run(ctx context.Context) error {
	shut, err := d.inbox.subscribe(d.answered)
	if err != nil {
		return drover.Errorf(drover.CodeUnavailable, "the inbox for receipts: %v", err)
	}
	tasks, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wait sync.WaitGroup
	d.spawn = func(task func(context.Context)) { wait.Go(func() { task(tasks) }) }
	d.loop(ctx)
	shut()
	d.mu.Lock()
	d.over, d.mailbox, d.unread = true, nil, 0
	d.mu.Unlock()
	stop()
	wait.Wait()
	return nil
}

func (d *Deliverer) loop(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	asked := ctx.Done()
	var end time.Time // of the draining
	for {
		select {
		case <-d.news:
		case <-timer.C:
		case <-asked:
			asked = nil
			d.drain()
			end = time.Now().Add(d.opts.DrainTimeout)
		}
		now := time.Now()
		d.read(now)
		d.ring(now)
		d.settle(now)
		if d.draining && (d.flying == 0 || !now.Before(end)) {
			return
		}
		next := d.alarms.first(now.Add(time.Hour))
		if d.draining && end.Before(next) {
			next = end
		}
		timer.Reset(time.Until(next))
	}
}

// read takes in what is in the mailbox.
func (d *Deliverer) read(now time.Time) {
	d.mu.Lock()
	events := d.mailbox
	d.mailbox, d.unread = d.spare[:0], 0
	d.mu.Unlock()
	for i, e := range events {
		events[i] = event{}
		switch {
		case e.ended != nil:
			d.finish(e.ended, now)
		case d.draining:
		case e.looked != nil:
			d.takeLooked(e.looked, now)
		case e.refused:
			d.busy(d.targetOf(e.job), e.job, now)
		case e.found:
			d.takeFound(e.job, now)
		default:
			d.take(e.job, now)
		}
	}
	if cap(events) > maxSpare {
		events = nil
	}
	d.spare = events
}

// ring does what is due: it gives up on attempts, and wakes targets.
func (d *Deliverer) ring(now time.Time) {
	for {
		a := d.alarms.due(now)
		switch {
		case a == nil:
			return
		case a.attempt != nil:
			d.expire(a.attempt, now)
		default:
			d.touch(a.target)
		}
	}
}

// settle has every target that something happened to go on.
func (d *Deliverer) settle(now time.Time) {
	for len(d.dirty) > 0 {
		t := d.dirty[len(d.dirty)-1]
		d.dirty = d.dirty[:len(d.dirty)-1]
		t.dirty = false
		if !d.draining && d.targets[t.key] == t {
			d.goOn(t, now)
		}
		if len(d.dirty) == 0 {
			d.nextLookers()
		}
	}
}

// drain drops what is not under way.
func (d *Deliverer) drain() {
	d.draining = true
	for _, t := range d.targets {
		d.alarms.cancel(&t.alarm)
		for _, q := range t.queue {
			d.release(t, q.job)
		}
		t.queue, t.queued = nil, 0
	}
}
