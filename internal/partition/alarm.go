package partition

import (
	"container/heap"
	"time"
)

// alarm is a time at which something is looked at again: a run, or an
// operation that failed. Alarms are never taken back; one that has become
// pointless finds nothing to do.
type alarm struct {
	at   time.Time
	ring func()
}

type alarms []alarm

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a alarms) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *alarms) Push(x any)        { *a = append(*a, x.(alarm)) }

func (a *alarms) Pop() any {
	old := *a
	last := old[len(old)-1]
	old[len(old)-1] = alarm{}
	*a = old[:len(old)-1]
	return last
}

func (a *alarms) add(at time.Time, ring func()) { heap.Push(a, alarm{at, ring}) }

// due takes the earliest alarm that is due, if any.
func (a *alarms) due(now time.Time) (func(), bool) {
	if len(*a) == 0 || (*a)[0].at.After(now) {
		return nil, false
	}
	return heap.Pop(a).(alarm).ring, true
}

const (
	firstPause = 50 * time.Millisecond
	longPause  = 5 * time.Second
)

// pause is how long to wait before the attempt after so many failures.
func pause(failures int) time.Duration {
	return min(firstPause<<min(failures, 16), longPause)
}
