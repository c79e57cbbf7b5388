package worker

import "sync"

// maxQueued is how many commands an owner reads ahead of its commits.
const maxQueued = 4096

// How many bytes a worker has in memory at a time, if it owns all partitions of
// its fleet. Each of these has an equal share, but not less than what makes
// sense.
const (
	readBytes   = 32 << 20 // that the server was asked for, and has not sent
	minRead     = 64 << 10
	queuedBytes = 64 << 20 // of commands that were read and are not committed
	minQueued   = 256 << 10
	keptBytes   = 256 << 20 // of runs
	minKept     = 1 << 20
)

// How many may be under way at a time, in all partitions of a worker.
const (
	maxAlone   = 8  // requests for one command that is larger than a share
	maxFetches = 32 // reads of values
)

// share is the part of some bytes that one partition has.
func (w *Worker) share(all, least int) int {
	return max(all/max(w.settings.Partitions, 1), least)
}

// load is commands, and the bytes of their payloads.
type load struct{ commands, bytes int }

// gate holds a reader back while its owner has enough to do.
type gate struct {
	bytes int // of payloads that may be with the owner

	mu     sync.Mutex
	cond   sync.Cond
	unread load // on its way from the reader to the owner
	queued load // with the owner, and not committed
	room   int  // commands that may be on their way: for each there may be a run to come
	broken bool
}

func newGate(bytes int) *gate {
	g := &gate{bytes: bytes, room: maxQueued}
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
	return g.unread.commands >= g.room || g.unread.commands+g.queued.commands >= maxQueued || g.unread.bytes+g.queued.bytes >= g.bytes
}

// set says what has arrived of what passed, what the owner has to do, and for how
// many more commands it has room.
func (g *gate) set(arrived, queued load, room int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unread.commands -= arrived.commands
	g.unread.bytes -= arrived.bytes
	g.queued, g.room = queued, room
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
