package natstest

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// Clock runs a test under a fake clock. time.Sleep in it is how the clock is moved:
// it returns at once when nothing is left to do before that time.
//
// Under the race detector it has one thread: Go 1.26 gives all timers of a bubble
// that are due at once the same context of the detector (runtime/time.go,
// unlockAndRun), and two threads that use it end the process with a SIGSEGV.
func Clock(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	// The NATS client keeps timers in a pool for the whole process. One that was
	// made in a bubble ends the process when another bubble takes it out. A pool is
	// emptied by two collections.
	runtime.GC()
	runtime.GC()
	if raceDetector {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	synctest.Test(t, test)
}

// Bubble is [Clock] with a server inside.
func Bubble(t *testing.T, test func(t *testing.T, s *Server)) {
	t.Helper()
	Clock(t, func(t *testing.T) {
		// The last clean-up: a subscription that drains looks ten times a second whether
		// its connection is closed, and a bubble must not end before its goroutines.
		t.Cleanup(func() { time.Sleep(time.Second) })
		test(t, New(t))
	})
}
