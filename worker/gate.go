package worker

import "sync"

// How much an owner reads ahead of its folds.
const (
	maxQueued      = 4096     // commands
	maxQueuedBytes = 16 << 20 // of their payloads
)

// load is commands, and the bytes of their payloads.
type load struct{ commands, bytes int }

// gate holds a reader back while its owner has enough to do.
type gate struct {
	mu     sync.Mutex
	cond   sync.Cond
	unread load // on its way from the reader to the owner
	queued load // with the owner, and not folded
	broken bool
}

func newGate() *gate {
	g := &gate{}
	g.cond.L = &g.mu
	return g
}

// enter lets one command pass, when there is room.
func (g *gate) enter(bytes int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.full() && !g.broken {
		g.cond.Wait()
	}
	g.unread.commands++
	g.unread.bytes += bytes
}

func (g *gate) full() bool {
	return g.unread.commands+g.queued.commands >= maxQueued || g.unread.bytes+g.queued.bytes >= maxQueuedBytes
}

// set says what has arrived of what passed, and what the owner has to do.
func (g *gate) set(arrived, queued load) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unread.commands -= arrived.commands
	g.unread.bytes -= arrived.bytes
	g.queued = queued
	if !g.full() {
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
