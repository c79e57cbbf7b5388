package function_test

import (
	"fmt"
	"testing"

	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/function/functiontest"
)

// Results that come together may share a batch; each is there once, also when
// the server is asked to end meanwhile.
func TestResultsShareAWrite(t *testing.T) {
	f := newFleet(t)
	fn, began, letGo := held("f")
	fn.Concurrency = 200
	stop := f.Serve(function.Options{GroupWrites: true}, fn)
	for i := range 200 {
		f.Queue(fmt.Sprintf("run%d/n@1", i), "f", "1")
	}
	for range 200 {
		functiontest.Await(t, began, "a call")
	}
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	close(letGo)
	seen := map[string]bool{}
	for range 200 {
		r := f.Next()
		if seen[r.Call.String()] || r.Error != nil || string(r.Output) != "1" {
			t.Errorf("result %+v, seen %v", r, seen[r.Call.String()])
		}
		seen[r.Call.String()] = true
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	f.Drained()
}
