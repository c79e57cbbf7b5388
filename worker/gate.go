package worker

import "sync"

// gate holds a reader back while its owner has enough to do.
type gate struct {
	mu     sync.Mutex
	cond   sync.Cond
	closed bool
	broken bool
}

func newGate() *gate {
	g := &gate{}
	g.cond.L = &g.mu
	return g
}

// set lets readers pass, or not.
func (g *gate) set(pass bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = !pass
	if pass {
		g.cond.Broadcast()
	}
}

// open lets everybody pass from now on.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.broken = true
	g.cond.Broadcast()
}

// wait returns when it may pass.
func (g *gate) wait() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.closed && !g.broken {
		g.cond.Wait()
	}
}
