package bench

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/droverhq/drover/internal/publish"
	"github.com/droverhq/drover/internal/topology"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

// floorKeys is how many keys are written at the same time, and floorBytes the
// size of what is written: about that of a record.
const (
	floorKeys  = 256
	floorBytes = 600
)

// floor gives how many revision-checked updates a second the server does, with
// an update of each of so many keys in flight.
func (f *fleet) floor(ctx context.Context, length time.Duration) (float64, error) {
	names, err := subjects.New(f.names.Prefix() + "_floor")
	if err != nil {
		return 0, err
	}
	if _, err := topology.Ensure(ctx, f.js, names, f.settings()); err != nil {
		return 0, err
	}
	publisher, err := publish.New(f.js.Conn(), publish.Options{})
	if err != nil {
		return 0, err
	}
	defer publisher.Close()
	store, err := kv.Open(ctx, f.js, publisher, names)
	if err != nil {
		return 0, err
	}
	perSecond, err := update(store.Runs, length)
	return perSecond, errors.Join(err, removeStreams(ctx, f.js, names))
}

// update writes keys until the time is over, each again when its write ended.
// Writes that ended together are followed by writes that go out together.
func update(runs kv.Runs, length time.Duration) (float64, error) {
	var mu sync.Mutex
	var ended []kv.Commit
	var first error
	some := sync.NewCond(&mu)
	data := make([]byte, floorBytes)
	commit := func(key string, revision uint64) (c kv.Commit) {
		c = kv.Commit{Key: key, Revision: revision, Data: data}
		c.Done = func(revision uint64, err error) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, kv.ErrBusy): // a cluster says so of a single writer as well; the write is repeated
			case err != nil && first == nil:
				first = err
			case err == nil:
				c.Revision = revision
			}
			ended = append(ended, c)
			some.Signal()
		}
		return c
	}
	for i := range floorKeys {
		ended = append(ended, commit("0."+strconv.Itoa(i), 0))
	}
	begun := time.Now()
	inFlight, writes := 0, 0
	for {
		mu.Lock()
		for len(ended) == 0 {
			some.Wait()
		}
		batch, err := ended, first
		ended = nil
		mu.Unlock()
		if writes > 0 {
			inFlight -= len(batch)
		}
		if err != nil || time.Since(begun) >= length {
			if inFlight == 0 {
				return float64(writes) / time.Since(begun).Seconds(), err
			}
			continue
		}
		next := make([]kv.Commit, 0, len(batch))
		for _, c := range batch {
			next = append(next, commit(c.Key, c.Revision))
		}
		writes += len(next)
		inFlight += len(next)
		runs.Commit(next)
	}
}
