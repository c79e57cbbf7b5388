package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/droverhq/drover/kv"
)

// info is what a worker tells of itself.
type info struct {
	Name    string    `json:"name"`
	Since   time.Time `json:"since"`
	Leaving bool      `json:"leaving,omitempty"` // it wants no partitions
}

// member keeps a worker in the fleet, and its partitions with it. All of it
// belongs to one goroutine, which reads the inbox.
type member struct {
	*Worker
	inbox  *mailbox[func()]
	rest   context.Context //nolint:containedctx // of everything that the member starts
	self   info
	lease  kv.Member
	held   bool     // the lease is held
	active []string // sorted
	should []string // who should own which partition
	live   map[string]bool
	parts  map[int]kv.Partition
	seen   int // of the two watches, how many have told all that there was: bits
	owners map[int]*tenure
	taking map[int]bool
	joins  int
	told   int // partitions that it was said to own; -1: nothing was said yet
}

// tenure is the time that this worker owns a partition.
type tenure struct {
	owner    *owner
	epoch    uint64
	cancel   context.CancelFunc
	draining bool
}

const (
	sawMembers = 1 << iota
	sawPartitions
	sawAll = sawMembers | sawPartitions
)

// membership keeps the worker in the fleet until ctx ends, and then until its
// partitions are given back. rest ends everything at once.
func (w *Worker) membership(ctx, rest context.Context) error {
	m := &member{
		Worker: w,
		inbox:  newMailbox[func()](),
		rest:   rest,
		self:   info{Name: w.opts.Name, Since: time.Now()},
		live:   map[string]bool{},
		parts:  map[int]kv.Partition{},
		owners: map[int]*tenure{},
		taking: map[int]bool{},
		told:   -1,
	}
	if w.opts.Alone {
		if err := w.evict(ctx); ctx.Err() != nil {
			return nil
		} else if err != nil {
			return fmt.Errorf("worker %s could not end the leases of those before it: %w", w.id, err)
		}
	}
	if err := m.join(ctx); ctx.Err() != nil && err != nil {
		return nil // a lease that was written nevertheless runs out
	} else if err != nil {
		return fmt.Errorf("worker %s could not join the fleet: %w", w.id, err)
	}
	watching, stop := context.WithCancel(rest)
	defer w.work.Wait()
	defer stop()
	w.async(func() { _ = w.fleet.WatchMembers(watching, func(l []kv.Member) { m.tell(func() { m.members(l) }) }) })
	w.async(func() {
		_ = w.fleet.WatchPartitions(watching, func(l []kv.Partition) { m.tell(func() { m.partitions(l) }) })
	})
	err := m.loop(ctx)
	if m.held {
		gone, cancel := context.WithTimeout(context.WithoutCancel(rest), time.Second)
		defer cancel()
		if err := w.fleet.Leave(gone, m.lease); err != nil {
			w.log.Warn().Err(err).Msg("the lease could not be ended, it runs out")
		}
	}
	return err
}

// evict ends the leases of all workers.
func (w *Worker) evict(ctx context.Context) error {
	before, err := kv.First(ctx, w.fleet.WatchMembers)
	if err != nil {
		return err
	}
	for _, other := range before {
		if err := w.fleet.Leave(ctx, other); err != nil {
			return err
		}
	}
	return nil
}

func (m *member) tell(do func()) { m.inbox.put(do) }

// loop does what is told, and renews the lease, until all is given back.
func (m *member) loop(ctx context.Context) error {
	renew := time.NewTicker(m.opts.Lease / 3)
	defer renew.Stop()
	stop := ctx.Done()
	var hurry <-chan time.Time
	var todo []func()
	for {
		select {
		case <-m.rest.Done():
			m.abandon()
			return nil
		case <-stop:
			stop = nil
			hurry = time.After(m.opts.DrainTimeout)
			m.self.Leaving = true
			m.renew()
			m.reconcile()
		case <-hurry:
			m.log.Warn().Int("partitions", len(m.owners)).Msg("partitions were not given back in time, others take them over")
			m.abandon()
			return nil
		case <-renew.C:
			m.renew()
			m.blind()
		case <-m.inbox.signal:
			todo = m.inbox.take(todo)
			for _, do := range todo {
				do()
			}
			m.reconcile()
		}
		if stop == nil && len(m.owners) == 0 && len(m.taking) == 0 {
			return nil
		}
	}
}

// blind says that the fleet cannot be seen, without which nothing is owned.
func (m *member) blind() {
	if m.seen != sawAll && m.held && !m.self.Leaving && time.Since(m.self.Since) > m.opts.Lease {
		m.log.Warn().Msg("the fleet cannot be watched, so no partition is taken: the server is slow, or this worker may not read the bucket of the fleet")
	}
}

func (m *member) join(ctx context.Context) error {
	data, err := json.Marshal(m.self)
	if err != nil {
		return err
	}
	if m.lease, err = m.fleet.Join(ctx, m.id, data, m.opts.Lease); err != nil {
		return err
	}
	m.held = true
	if m.joins++; m.joins == 1 {
		m.log.Info().Msg("joined the fleet")
	} else {
		m.log.Info().Msg("rejoined the fleet")
	}
	return nil
}

// renew prolongs the lease. It waits for the answer: a worker whose lease is
// late has nothing better to do.
//
// A lease that ran out means that others have taken over, or are about to. What
// is in memory is dropped, and the worker joins anew.
func (m *member) renew() {
	ctx, cancel := context.WithTimeout(m.rest, m.opts.Lease/3)
	defer cancel()
	if !m.held {
		if err := m.join(ctx); err != nil {
			m.log.Warn().Err(err).Msg("the fleet could not be joined, it is tried again")
		}
		return
	}
	data, err := json.Marshal(m.self)
	if err == nil {
		m.lease.Info = data
		m.lease, err = m.fleet.Renew(ctx, m.lease, m.opts.Lease)
	}
	switch {
	case err == nil:
	case errors.Is(err, kv.ErrConflict):
		m.log.Error().Err(err).Msg("the lease ran out, all partitions are dropped")
		m.held, m.told = false, -1
		m.abandon()
	default:
		m.late.note(err)
		m.log.Warn().Err(err).Msg("the lease could not be renewed, it is tried again")
	}
}

// abandon drops all partitions without giving them back.
func (m *member) abandon() {
	for _, t := range m.owners {
		t.cancel()
	}
}

func (m *member) members(list []kv.Member) {
	m.seen |= sawMembers
	before := m.active
	m.active = nil
	clear(m.live)
	for _, other := range list {
		var i info
		m.live[other.ID] = true
		if json.Unmarshal(other.Info, &i) != nil || !i.Leaving {
			m.active = append(m.active, other.ID)
		}
	}
	// Every renewal comes here, and to compute this costs a hash for each member
	// and partition.
	if m.should == nil || !slices.Equal(before, m.active) {
		m.should = assign(m.active, m.settings.Partitions)
	}
}

func (m *member) partitions(list []kv.Partition) {
	m.seen |= sawPartitions
	clear(m.parts)
	for _, p := range list {
		m.parts[p.Number] = p
		t := m.owners[p.Number]
		if t == nil || p.Epoch <= t.epoch {
			continue
		}
		// One that drains has been given back: the next owner was quicker than
		// the answer to that.
		if !t.draining {
			m.log.Warn().Int("partition", p.Number).Str("to", p.Worker).Msg("a partition was taken by another worker, and is dropped")
		}
		t.epoch = p.Epoch // once is enough
		t.cancel()
	}
}

// reconcile gives back what should be another's, and takes what should be its
// own and has no owner that lives. What still bears its name although nobody
// drives it, such as after a lease that ran out, it takes as well to give it
// back: nobody else may, as long as it lives.
func (m *member) reconcile() {
	if m.seen != sawAll {
		return
	}
	missing, leaving := 0, 0
	for n, worker := range m.should {
		mine := worker == m.id && !m.self.Leaving && m.held
		t := m.owners[n]
		switch {
		case t != nil && !mine && !t.draining:
			t.draining = true
			close(t.owner.drain)
			leaving++
		case t != nil && t.draining:
			leaving++
		case t == nil && mine && !m.taking[n]:
			missing++
			p := m.parts[n]
			if p.Worker == "" || p.Worker == m.id || !m.live[p.Worker] {
				m.take(n)
			}
		case t == nil && !m.taking[n] && m.held && !m.self.Leaving && m.parts[n].Worker == m.id:
			m.take(n)
		case t == nil && mine:
			missing++
		}
	}
	if missing == 0 && m.live[m.id] {
		if leaving+len(m.taking) == 0 && m.held && !m.self.Leaving {
			m.settled()
		}
		select {
		case <-m.ready:
		default:
			close(m.ready)
		}
	}
}

// settled tells how many partitions are this worker's, where that is news.
func (m *member) settled() {
	if n := len(m.owners); n != m.told {
		m.told = n
		m.log.Info().Msgf("owns %d of %d partitions", n, m.settings.Partitions)
	}
}

// take makes a partition this worker's own, and drives it. The write is refused
// where the partition is not what the watch has told.
func (m *member) take(n int) {
	m.taking[n] = true
	p := m.parts[n]
	p.Number, p.Worker = n, m.id
	p.Epoch++
	m.async(func() {
		held, err := m.rewound(m.rest, p)
		if err == nil {
			held, err = m.fleet.Save(m.rest, held)
		}
		m.tell(func() {
			if err != nil {
				m.failed(n, "could not be taken", err)
				return
			}
			delete(m.taking, n)
			m.parts[n] = held
			m.begin(held)
		})
	})
}

// failed leaves a partition alone for a moment, so that what fails at once does
// not spin.
func (m *member) failed(n int, what string, err error) {
	m.taking[n] = true
	pause := time.Second
	if errors.Is(err, kv.ErrConflict) {
		pause = 100 * time.Millisecond // until the watch has told who has it
	} else if m.rest.Err() == nil {
		m.log.Warn().Err(err).Int("partition", n).Msg("a partition " + what + ", it is tried again")
	}
	m.async(func() {
		select {
		case <-time.After(pause):
		case <-m.rest.Done():
		}
		m.tell(func() { delete(m.taking, n) })
	})
}

// begin drives a partition that was taken.
func (m *member) begin(held kv.Partition) {
	ctx, cancel := context.WithCancel(m.rest)
	t := &tenure{owner: newOwner(m.Worker, held), epoch: held.Epoch, cancel: cancel}
	m.owners[held.Number] = t
	m.passed(held)
	m.adopt()
	m.async(func() {
		err := t.owner.run(ctx)
		cancel()
		m.tell(func() {
			if err == nil {
				m.parts[held.Number] = t.owner.held
			}
			m.ended(held.Number, err)
		})
	})
}

func (m *member) ended(n int, err error) {
	delete(m.owners, n)
	m.mu.Lock()
	delete(m.saved, n)
	m.mu.Unlock()
	switch {
	case err == nil || errors.Is(err, context.Canceled):
	case errors.Is(err, errLost):
		m.log.Warn().Int("partition", n).Msg("a partition was lost to another worker")
		m.failed(n, "", kv.ErrConflict)
	default:
		m.failed(n, "could not be driven", err)
	}
}
