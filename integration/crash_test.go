package integration_test

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// answer is for how long a crash test waits for one answer of a server that may
// be dead.
const answer = 2 * time.Second

// TestCrashAnywhere kills the server, with the worker in it, again and again
// while runs of every kind are on their way. No acknowledged start may be lost,
// none may have two outcomes, and everyone must be told.
func TestCrashAnywhere(t *testing.T) {
	t.Parallel()
	const atOnce = 24
	kills := cmp.Or(*kills, 120)
	if testing.Short() {
		kills = min(kills, 20)
	}
	chance := rand.New(rand.NewPCG(choose(t), 1))
	address, data := freeAddress(t), t.TempDir()
	w := newCrashed(connect(t, "nats://"+address))
	serve := func() *process { return launch(t, "dev", "--data", data, "--listen", address, "--log-level", "error") }
	ctx, cancel := context.WithCancel(t.Context())
	var starting sync.WaitGroup
	starting.Go(func() { w.begin(ctx, atOnce) })
	for range kills {
		p := serve()
		w.live(p, "drover is ready", chance)
		p.kill()
	}
	cancel()
	p := serve() // what was begun is finished only while somebody answers
	p.line("drover is ready")
	starting.Wait()
	w.settle()
	w.check()
	t.Logf("%d kills, %d runs", kills, len(w.runs))
	if len(w.runs) < kills/10 {
		t.Errorf("only %d runs were started between %d kills: nothing was tried", len(w.runs), kills)
	}
}

// live returns when the process is to be killed: some time after it began, which
// may be before it is ready; some time after it is ready; or after so many
// commits.
func (w *crashed) live(p *process, ready string, chance *rand.Rand) {
	w.t.Helper()
	kind := chance.IntN(4)
	short, long, commits := chance.IntN(300), chance.IntN(150), 1+chance.IntN(80)
	if kind == 0 {
		<-time.After(time.Duration(short) * time.Millisecond)
		return
	}
	p.line(ready)
	w.forget()
	enough := time.After(time.Duration(long) * time.Millisecond)
	if kind == 1 {
		<-enough
		return
	}
	enough = time.After(250 * time.Millisecond)
	for range commits {
		select {
		case <-w.changed:
		case <-enough:
			return
		}
	}
}

// forget has events that were heard before not count.
func (w *crashed) forget() {
	for len(w.changed) > 0 {
		<-w.changed
	}
}

// choose gives the seed of a test's choices, and tells it.
func choose(t *testing.T) uint64 {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed %d", s)
	return s
}
