package worker

import "sync"

// mailbox is a queue without a bound from many goroutines to one. Putting never
// blocks, so that a callback may do it; what is put is bounded by what its
// taker asked for.
type mailbox[T any] struct {
	signal chan struct{} // has an element when there may be something to take

	mu    sync.Mutex
	items []T
}

func newMailbox[T any]() *mailbox[T] {
	return &mailbox[T]{signal: make(chan struct{}, 1)}
}

func (m *mailbox[T]) put(item T) {
	m.mu.Lock()
	m.items = append(m.items, item)
	m.mu.Unlock()
	select {
	case m.signal <- struct{}{}:
	default:
	}
}

// take gives all that was put, and keeps old for what comes next.
func (m *mailbox[T]) take(old []T) []T {
	clear(old)
	m.mu.Lock()
	defer m.mu.Unlock()
	items := m.items
	m.items = old[:0]
	return items
}
