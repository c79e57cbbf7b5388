package worker

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/partition"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

var (
	soon  = time.UnixMilli(2000).Add(retention) // the old run's time is over
	later = soon.Add(retention)
)

// The writes of a removal, in their order.
var removal = []string{"retire", "values", "list", "streams", "record"}

// While a run can be read, everything is there that its outcome is made of; once it
// cannot, all of it goes in the end, wherever a janitor crashed.
func TestDelivery11ARemovalThatIsCutOff(t *testing.T) {
	for n := range len(removal) + 1 {
		t.Run(fmt.Sprintf("after %d writes", n), func(t *testing.T) {
			g := newGround(t)
			g.keep("r", "old")
			if _, err := g.commit(g.old("r"), 0); err != nil {
				t.Fatal(err)
			}
			f := &fuse{left: n}
			first := g.worker(f)
			if err := first.cleanRuns(t.Context(), soon.Add(-time.Minute)); err != nil || len(f.writes) > 0 {
				t.Fatalf("before its time: %v, error %v", f.writes, err)
			}
			if err := first.cleanRuns(t.Context(), soon); !errors.Is(err, drover.CodeUnavailable) {
				t.Fatalf("it did not crash: %v", err)
			}
			if fmt.Sprint(f.writes) != fmt.Sprint(removal[:n]) {
				t.Fatalf("it wrote %v", f.writes)
			}
			_, err := g.store.Runs.Load(t.Context(), subjects.RunKey(0, "r"))
			if n == 0 && (err != nil || g.has("r") != allOf("old")) || n > 0 && !errors.Is(err, drover.CodeNotFound) {
				t.Errorf("there is %s, and of the record %v", g.has("r"), err)
			}
			if n == 0 { // of no other interest: nothing happened
				return
			}
			second := g.worker(whole())
			if err := second.cleanRuns(t.Context(), later); err != nil {
				t.Fatal(err)
			}
			g.empty()
		})
	}
}

// A janitor that goes on after the server was away for a while does not leave the
// rest to whoever comes by a whole retention later.
func TestARemovalThatFailedIsGoneOnWith(t *testing.T) {
	for n := 1; n <= len(removal); n++ {
		g := newGround(t)
		for _, run := range []drover.RunID{"r", "r2"} {
			g.keep(run, "old")
			if _, err := g.commit(g.old(run), 0); err != nil {
				t.Fatal(err)
			}
		}
		young := g.old("young") // a scan ends with it
		young.Now = machine.Millis(soon.UnixMilli())
		rev, err := g.commit(young, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := &fuse{left: n}
		w := g.worker(f)
		if err := w.cleanRuns(t.Context(), soon); err == nil {
			t.Fatal("it did not fail")
		}
		f.left = -1
		if err := w.cleanRuns(t.Context(), soon); err != nil {
			t.Fatal(err)
		}
		if err := g.store.Runs.Purge(t.Context(), subjects.RunKey(0, "young"), rev); err != nil {
			t.Error(err)
		}
		g.empty()
	}
}

// A new run with the id of one that is half removed gets nothing of it, and loses
// nothing to a janitor that is late.
func TestDelivery11ANewRunWithTheIDOfAnOldOne(t *testing.T) {
	for n := 1; n <= len(removal); n++ {
		t.Run(fmt.Sprintf("after %d writes", n), func(t *testing.T) {
			g := newGround(t)
			g.keep("r", "old")
			rev, err := g.commit(g.old("r"), 0)
			if err != nil {
				t.Fatal(err)
			}
			f := &fuse{left: n}
			janitor := g.worker(f)
			var retired kv.Record
			f.before = func(write string) {
				if write == "values" { // the record was retired
					retired, _ = g.store.Runs.Load(t.Context(), subjects.RunKey(0, "r"))
				}
			}
			if err := janitor.cleanRuns(t.Context(), soon); err == nil {
				t.Fatal("it did not crash")
			}
			if n == 1 {
				retired, _ = g.store.Runs.Load(t.Context(), subjects.RunKey(0, "r"))
			}
			if n < len(removal) {
				for _, revision := range []uint64{0, rev} { // a start that takes for granted that there is no run; a replay
					if _, err := g.commit(g.old("r"), revision); !errors.Is(err, kv.ErrConflict) {
						t.Fatalf("over revision %d: error %v", revision, err)
					}
				}
			}
			// The owner looks at the record then, as it does for every command.
			o := &owner{w: g.worker(whole())}
			if res := o.load(t.Context(), &partition.Op{Run: "r"}); !errors.Is(res.Err, drover.CodeNotFound) || res.Revision != 0 {
				t.Fatalf("the owner finds %+v", res)
			}
			if has := g.has("r"); has != "" {
				t.Errorf("the new run would find %s", has)
			}
			g.keep("r", "new")
			if _, err := g.commit(g.old("r"), 0); err != nil {
				t.Fatal(err)
			}
			if err := o.w.finish(t.Context(), "r", subjects.RunKey(0, "r"), retired); err != nil || !retired.Retired {
				t.Errorf("a janitor that is late: %v", err)
			}
			if _, err := g.store.Runs.Load(t.Context(), subjects.RunKey(0, "r")); err != nil || g.has("r") != allOf("new") {
				t.Errorf("the new run has %s, error %v", g.has("r"), err)
			}
		})
	}
}

// A replay of a dead delivery comes when its run is about to be removed: either it is
// delivered with its result, or there is no such run.
func TestDelivery11AReplayWhileItsRunIsRemoved(t *testing.T) {
	for _, write := range removal {
		t.Run("before "+write, func(t *testing.T) {
			g := newGround(t)
			g.keep("r", "old")
			rev, err := g.commit(g.old("r"), 0)
			if err != nil {
				t.Fatal(err)
			}
			replayed := g.old("r")
			replayed.Now = machine.Millis(soon.UnixMilli())
			sub := &replayed.Notify[0]
			sub.Status, sub.Since, sub.At, sub.Next = drover.DeliveryPending, replayed.Now, 0, replayed.Now+15_000
			f := whole()
			f.before = func(next string) {
				if next == write {
					_, err = g.commit(replayed, rev)
				}
			}
			w := g.worker(f)
			if err := w.cleanRuns(t.Context(), soon); err != nil {
				t.Fatal(err)
			}
			switch {
			case write != removal[0]:
				if !errors.Is(err, kv.ErrConflict) {
					t.Errorf("the replay of a run that is removed: %v", err)
				}
				g.empty()
			case err != nil || g.has("r") != allOf("old"):
				t.Errorf("the replay came first, and finds %s, error %v", g.has("r"), err)
			}
		})
	}
}
