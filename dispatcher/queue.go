package dispatcher

import "sync"

// queue is tasks in order. It has no bound of its own: what fills it is bounded
// by how much a partition has under way.
type queue struct {
	mu     sync.Mutex
	some   sync.Cond
	tasks  []func()
	head   int // tasks before it are done
	closed bool
}

func newQueue() *queue {
	q := &queue{}
	q.some.L = &q.mu
	return q
}

// push adds a task. It never blocks.
func (q *queue) push(task func()) {
	q.mu.Lock()
	q.tasks = append(q.tasks, task)
	q.mu.Unlock()
	q.some.Signal()
}

// work does tasks until the queue is closed and empty. Several goroutines may.
func (q *queue) work() {
	for {
		task := q.pop()
		if task == nil {
			return
		}
		task()
	}
}

// pop waits for a task. It is nil when there will be none.
func (q *queue) pop() func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.head == len(q.tasks) {
		if q.closed {
			return nil
		}
		q.tasks, q.head = q.tasks[:0], 0
		q.some.Wait()
	}
	task := q.tasks[q.head]
	q.tasks[q.head] = nil
	q.head++
	if q.head > 1024 && q.head > len(q.tasks)/2 { // a queue that is never empty gives room back as well
		n := copy(q.tasks, q.tasks[q.head:])
		clear(q.tasks[n:])
		q.tasks, q.head = q.tasks[:n], 0
	}
	return task
}

// close ends the work when all tasks are done.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.some.Broadcast()
}
