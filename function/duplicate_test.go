package function_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/function/functiontest"
	"github.com/droverhq/drover/subjects"
)

// A worker that does not know whether it queued a call queues it again. The
// second message goes at once, and the call that runs is not begun again when
// its own message has waited for too long.
func TestACallThatIsQueuedTwiceRunsOnce(t *testing.T) {
	f := newFleet(t)
	fn, began, letGo := held("f")
	f.Serve(function.Options{}, fn)
	f.Queue("run1/n@1", "f", "1")
	functiontest.Await(t, began, "a call")
	for range 5 {
		f.Queue("run1/n@1", "f", "1")
	}
	functiontest.Until(t, "a queue with the first message only", func() bool { return f.Queued() == 1 })
	s, err := f.JS.Stream(t.Context(), f.Names.Calls())
	if err != nil {
		t.Fatal(err)
	}
	if first := s.CachedInfo().State.FirstSeq; first != 1 {
		t.Errorf("the queue keeps message %d, want the one that runs", first)
	}
	close(letGo)
	f.Next()
	f.Drained()
	if len(began) > 0 {
		t.Error("the call was begun twice")
	}
}

// Whoever may publish calls may forge one before the real one comes. Without its
// token that is another call: it must not take the place of the real one.
func TestAForgedCallDoesNotHideTheRealOne(t *testing.T) {
	f := newFleet(t)
	fn, began, letGo := held("f")
	f.Serve(function.Options{}, fn)
	f.Queue("run1/n@1", "f", "1", subjects.HeaderToken, "guess")
	functiontest.Await(t, began, "the forged call")
	f.Queue("run1/n@1", "f", "1")
	functiontest.Await(t, began, "the real call")
	// A cancel is for both.
	if err := f.Conn.Publish(f.Names.Cancel("run1", "f"), []byte("run1/n@1")); err != nil {
		t.Fatal(err)
	}
	f.Drained()
	close(letGo)
}

func TestForgedMessagesDoNotFillTheLog(t *testing.T) {
	var logged lockedBuffer
	f := newFleet(t)
	f.Serve(function.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))}, echo("f"))
	for i := range 3000 {
		if _, err := f.JS.PublishAsync(f.Names.Call("run1", "f"), fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 999 {
			<-f.JS.PublishAsyncComplete()
		}
	}
	<-f.JS.PublishAsyncComplete()
	f.Drained()
	if n := strings.Count(logged.String(), "\n"); n == 0 || n > 500 {
		t.Errorf("%d lines are logged about 3000 messages", n)
	}
}
