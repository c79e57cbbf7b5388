package api

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

// Deliveries lists where deliveries may wait, as kv.Deliveries does.
type Deliveries interface {
	List(key string, hint kv.Hint, done func(error))
	Unlist(key string, done func(error))
	Scan(ctx context.Context, filter string, visit func(key string, hint kv.Hint) bool) error
}

const (
	// maxHints is how many hints are kept at a time, the first ones by run. A
	// list that is longer is read again for what comes after them.
	maxHints = 50_000
	// maxLoads is how many records are read at the same time for one request.
	maxLoads = 32
)

// hint says where a delivery may wait.
type hint struct {
	run        drover.RunID
	subscriber int
	key        string // of the list; "": the record itself says that it is listed
	says       kv.Hint
}

func byRun(a, b hint) int {
	return cmp.Or(cmp.Compare(a.run, b.run), cmp.Compare(a.subscriber, b.subscriber))
}

// undelivered visits the deliveries that a filter chooses, by run and subscriber,
// until visit gives false. What the list hints at the records decide; hints that
// are wrong are removed.
func (s *Service) undelivered(ctx context.Context, f *drover.DeliveryFilter, visit func(drover.RunDelivery) bool) error {
	if err := checkDeliveryFilter(f); err != nil {
		return err
	}
	if f.RunID != "" {
		hints, err := s.listedOf(ctx, f.RunID)
		if err == nil {
			_, err = s.follow(ctx, hints, f, visit)
		}
		return err
	}
	last := hint{subscriber: -1}
	for {
		hints, more, err := s.hints(ctx, last, maxHints)
		if err != nil || len(hints) == 0 {
			return err
		}
		last = hints[len(hints)-1]
		if on, err := s.follow(ctx, hints, f, visit); err != nil || !on || !more {
			return err
		}
	}
}

func checkDeliveryFilter(f *drover.DeliveryFilter) error {
	switch f.Status {
	case "", drover.DeliveryPending, drover.DeliveryDead:
	default:
		return drover.Errorf(drover.CodeInvalidRequest,
			"status %.80q is none that is listed: pending, dead; delivery.show shows a delivery in any status", string(f.Status))
	}
	if f.RunID == "" {
		return nil
	}
	_, err := drover.ParseRunID(string(f.RunID))
	return err
}

// listedOf gives the deliveries that the record of a run says are listed.
func (s *Service) listedOf(ctx context.Context, run drover.RunID) ([]hint, error) {
	state, err := s.stateOf(ctx, run)
	if state == nil {
		return nil, err
	}
	var hints []hint
	for i := range state.Notify {
		if state.Notify[i].Listed {
			hints = append(hints, hint{run: run, subscriber: i})
		}
	}
	return hints, nil
}

// stateOf reads the state of a run; nil: there is none.
func (s *Service) stateOf(ctx context.Context, run drover.RunID) (*machine.State, error) {
	rec, err := s.Records.Load(ctx, subjects.RunKey(subjects.Partition(string(run), s.Partitions), run))
	if errors.Is(err, drover.CodeNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return machine.Decode(rec.Data)
}

// hints gives the first so many hints after one, and says whether there are more.
func (s *Service) hints(ctx context.Context, after hint, most int) (hints []hint, more bool, err error) {
	keep := func() {
		slices.SortFunc(hints, byRun)
		hints = slices.CompactFunc(hints, func(a, b hint) bool { return byRun(a, b) == 0 })
		more = more || len(hints) > most
		hints = hints[:min(len(hints), most)]
	}
	err = s.Deliveries.Scan(ctx, "", func(key string, says kv.Hint) bool { // what just died may not be listed as dead yet
		_, run, subscriber, ok := subjects.DeliveryOfKey(key)
		if !ok || subscriber < 0 {
			return true // somebody else's
		}
		if h := (hint{run, subscriber, key, says}); byRun(h, after) > 0 {
			hints = append(hints, h)
		}
		if len(hints) >= 2*most { // now and then, so that sorting costs little
			keep()
		}
		return true
	})
	keep()
	return hints, more, err
}

// follow reads the records that hints name, some at a time, and visits in the
// order of the hints what the filter chooses. on is false where visit gave false.
func (s *Service) follow(ctx context.Context, hints []hint, f *drover.DeliveryFilter, visit func(drover.RunDelivery) bool) (on bool, err error) {
	programs := s.newPrograms()
	for chunk := range slices.Chunk(hints, maxLoads) {
		found, err := s.found(ctx, chunk)
		if err != nil {
			return false, err
		}
		for _, l := range found {
			if l != nil && chosen(&l.RunDelivery, f) && programs.ofWorkflow(ctx, l.state, f.Workflow) && !visit(l.RunDelivery) {
				return false, nil
			}
		}
	}
	return true, nil
}

// listed is a delivery that a hint names, and the state that it is of.
type listed struct {
	drover.RunDelivery
	state *machine.State
}

// found reads the deliveries that hints name, at the same time; nil for a hint
// that is wrong.
func (s *Service) found(ctx context.Context, hints []hint) ([]*listed, error) {
	found, errs := make([]*listed, len(hints)), make([]error, len(hints))
	var loading sync.WaitGroup
	for i, h := range hints {
		loading.Go(func() { found[i], errs[i] = s.hinted(ctx, h) })
	}
	loading.Wait()
	return found, errors.Join(errs...)
}

// hinted reads the delivery of a hint; nil: it is neither pending nor dead, and
// the hint is removed.
func (s *Service) hinted(ctx context.Context, h hint) (*listed, error) {
	state, err := s.stateOf(ctx, h.run)
	if errors.Is(err, drover.CodeUnavailable) {
		return nil, err
	}
	if err != nil {
		// Another version's, or broken: whoever can read it will look at it.
		s.Logger.Warn().Err(err).Str("run", string(h.run)).Msg("the record of a listed delivery cannot be read")
		return nil, nil
	}
	if state != nil {
		d, _ := state.DeliveryOf(h.subscriber)
		if d.Status == drover.DeliveryPending && d.Notify.Function == "" && h.key != "" && !h.says.Waits() {
			s.Deliveries.List(h.key, kv.HintWaits, func(error) {}) // else nobody finds it who looks for what waits
		}
		if d.Status == drover.DeliveryPending || d.Status == drover.DeliveryDead {
			return &listed{d, state}, nil
		}
	}
	if h.key != "" {
		s.Deliveries.Unlist(h.key, func(error) {}) // it may stay: the next one who meets it removes it
	}
	return nil, nil
}

func chosen(d *drover.RunDelivery, f *drover.DeliveryFilter) bool {
	return (f.Status == "" || d.Status == f.Status) && (f.To == "" || d.Notify.To() == f.To)
}
