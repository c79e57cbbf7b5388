package natstest

import (
	"testing"
	"testing/synctest"
)

// Bubble runs a test under a fake clock, with a server inside. time.Sleep in
// it is how the clock is moved: it returns at once when nothing is left to do
// before that time.
func Bubble(t *testing.T, test func(t *testing.T, s *Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, New(t)) })
}
