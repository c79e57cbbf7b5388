package delivery

import (
	"container/heap"
	"time"
)

// alarm is when something is to be done for an attempt, or else for a target.
type alarm struct {
	at      time.Time
	place   int // in the heap, from 1; 0: not set
	attempt *attempt
	target  *target
}

// alarms are those that are set. The earliest is the first.
type alarms struct{ all alarmHeap }

// set has an alarm ring at a time, and at no other.
func (l *alarms) set(a *alarm, at time.Time) {
	switch {
	case a.place == 0:
		a.at = at
		heap.Push(&l.all, a)
	case !a.at.Equal(at):
		a.at = at
		heap.Fix(&l.all, a.place-1)
	}
}

// cancel has an alarm not ring.
func (l *alarms) cancel(a *alarm) {
	if a.place > 0 {
		heap.Remove(&l.all, a.place-1)
	}
}

// due takes an alarm that is to ring by now, or gives nil.
func (l *alarms) due(now time.Time) *alarm {
	if len(l.all) == 0 || l.all[0].at.After(now) {
		return nil
	}
	return heap.Pop(&l.all).(*alarm)
}

// first is when the next alarm rings, or none if that is sooner.
func (l *alarms) first(none time.Time) time.Time {
	if len(l.all) > 0 && l.all[0].at.Before(none) {
		return l.all[0].at
	}
	return none
}

// alarmHeap is the heap of container/heap; its alarms know their places.
type alarmHeap []*alarm

func (h alarmHeap) Len() int           { return len(h) }
func (h alarmHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

func (h alarmHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i+1, j+1
}

// Push is for container/heap.
func (h *alarmHeap) Push(x any) {
	a := x.(*alarm)
	*h = append(*h, a)
	a.place = len(*h)
}

// Pop is for container/heap.
func (h *alarmHeap) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	a.place = 0
	return a
}
