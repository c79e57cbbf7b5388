package function

import (
	"log/slog"
	"sync"
	"time"
)

// How many lines of one kind are logged in which time. Anyone may publish
// messages that are no calls, and a server that is away makes thousands of
// results wait.
const (
	burstLines = 10
	burstTime  = time.Second
)

// burst counts log lines of one kind. The zero value is ready.
type burst struct {
	mu      sync.Mutex
	since   time.Time
	lines   int
	dropped int
}

// allow reports whether one more line may be logged, and how many were not
// since the last that was.
func (b *burst) allow(now time.Time) (ok bool, dropped int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.since) >= burstTime {
		b.since, b.lines = now, 0
	}
	if b.lines >= burstLines {
		b.dropped++
		return false, 0
	}
	b.lines++
	dropped, b.dropped = b.dropped, 0
	return true, dropped
}

// warn logs a line, unless there were many of its kind just now.
func (l *loop) warn(b *burst, text string, attrs ...any) {
	ok, dropped := b.allow(time.Now())
	if !ok {
		return
	}
	if dropped > 0 {
		attrs = append(attrs, slog.Int("more", dropped))
	}
	l.log.Warn(text, attrs...)
}
