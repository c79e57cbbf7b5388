package worker

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/partition"
	"github.com/droverhq/drover/subjects"
)

// cursor saves up to where all commands of the partition are done.
func (g *ground) cursor(at uint64) {
	g.t.Helper()
	p, err := g.store.Fleet.Partition(g.t.Context(), 0)
	if err == nil {
		p.Worker, p.Cursor, p.Epoch = "w", at, p.Epoch+1
		_, err = g.store.Fleet.Save(g.t.Context(), p)
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

// there reports whether a run can be read.
func (g *ground) there(run drover.RunID) bool {
	g.t.Helper()
	_, err := g.store.Runs.Load(g.t.Context(), subjects.RunKey(0, run))
	if err != nil && !errors.Is(err, drover.CodeNotFound) {
		g.t.Fatal(err)
	}
	return err == nil
}

// A command that the next owner reads again would find no run, and begin it anew, and
// what the run owes would be lost: so it stays until the cursor is past its commands.
func TestDelivery11ARunStaysWhileItsCommandsMayBeReadAgain(t *testing.T) {
	t.Run("one that is in the record", func(t *testing.T) {
		g := newGround(t)
		s := g.old("r")
		s.Applied = 7
		if _, err := g.commit(s, 0); err != nil {
			t.Fatal(err)
		}
		w := g.worker(whole())
		for _, cursor := range []uint64{6, 7, 8} {
			g.cursor(cursor)
			if err := w.cleanRuns(t.Context(), soon); err != nil || g.there("r") != (cursor <= s.Applied) {
				t.Errorf("cursor %d: there is a run: %v, error %v", cursor, g.there("r"), err)
			}
		}
	})
	t.Run("one that changed nothing", func(t *testing.T) {
		g := newGround(t)
		if _, err := g.commit(g.old("r"), 0); err != nil {
			t.Fatal(err)
		}
		var last uint64
		for _, run := range []drover.RunID{"r", "other"} {
			ack, err := g.js.Publish(t.Context(), g.names.In(run, drover.VerbStart), []byte("{}"))
			if err != nil {
				t.Fatal(err)
			}
			last = ack.Sequence
		}
		w := g.worker(whole())
		for _, cursor := range []uint64{1, last - 1, last} {
			g.cursor(cursor)
			if err := w.cleanRuns(t.Context(), soon); err != nil || g.there("r") != (cursor < last) {
				t.Errorf("cursor %d: there is a run: %v, error %v", cursor, g.there("r"), err)
			}
		}
	})
	t.Run("nobody knows which", func(t *testing.T) { // the key of the partition is gone
		g := newGround(t)
		if _, err := g.commit(g.old("r"), 0); err != nil {
			t.Fatal(err)
		}
		fleet, err := g.js.KeyValue(t.Context(), g.names.Fleet())
		if err == nil {
			err = fleet.Purge(t.Context(), subjects.PartitionKey(0))
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := g.worker(whole()).cleanRuns(t.Context(), soon); err != nil || !g.there("r") {
			t.Errorf("there is a run: %v, error %v", g.there("r"), err)
		}
	})
}

// The list only hints: that its keys cannot be removed, as where the worker may not,
// keeps nothing else, and no new run with the id.
func TestARunIsRemovedAlthoughItsKeysOfTheListAreNot(t *testing.T) {
	g := newGround(t)
	g.keep("r", "old")
	if _, err := g.commit(g.old("r"), 0); err != nil {
		t.Fatal(err)
	}
	f := whole()
	f.refuses = func(write string, _ drover.RunID) bool { return write == "list" }
	w := g.worker(f)
	if err := w.cleanRuns(t.Context(), soon); err != nil || g.has("r") != "listed" {
		t.Errorf("there is %s, error %v", g.has("r"), err)
	}
	if _, err := g.commit(g.old("r"), 0); err != nil {
		t.Errorf("a new run: %v", err)
	}
}

// What goes on failing for one run keeps no other from being removed, now or later.
func TestOneRunThatCannotBeRemovedKeepsNoOther(t *testing.T) {
	g := newGround(t)
	add := func(runs ...drover.RunID) {
		t.Helper()
		for _, run := range runs {
			g.keep(run, "old")
			if _, err := g.commit(g.old(run), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	f := whole()
	f.refuses = func(write string, run drover.RunID) bool {
		return write == "values" && strings.HasPrefix(string(run), "bad")
	}
	w := g.worker(f)
	for _, runs := range [][]drover.RunID{{"bad", "r1", "r2"}, {"r3", "bad2", "r4"}, {"r5"}} {
		add(runs...)
		if err := w.cleanRuns(t.Context(), soon); !errors.Is(err, drover.CodeUnavailable) {
			t.Errorf("it was told nothing: %v", err)
		}
		for _, run := range runs {
			if has := g.has(run); (has != "") != f.refuses("values", run) || g.there(run) {
				t.Errorf("of %s there is %q", run, has)
			}
		}
	}
	f.refuses = nil
	if err := w.cleanRuns(t.Context(), soon); err != nil {
		t.Error(err)
	}
	g.empty()
}

// What is retired in a way that this version cannot read is removed nevertheless, by
// whoever meets it, and nothing else with it.
func TestARetiredRecordThatCannotBeRead(t *testing.T) {
	for _, who := range []string{"janitor", "owner"} {
		g := newGround(t)
		g.keep("r", "old")
		rev, err := g.commit(g.old("r"), 0)
		if err != nil {
			t.Fatal(err)
		}
		key := subjects.RunKey(0, "r")
		if _, err := g.store.Runs.Retire(t.Context(), key, rev, []byte("what?")); err != nil {
			t.Fatal(err)
		}
		w := g.worker(whole())
		retired, _ := g.store.Runs.Load(t.Context(), key)
		switch who {
		case "janitor":
			if err := w.cleanRuns(t.Context(), later.Add(time.Hour)); err != nil {
				t.Error(err)
			}
		case "owner":
			if res := (&owner{w: w}).load(t.Context(), &partition.Op{Run: "r"}); !errors.Is(res.Err, drover.CodeNotFound) || res.Revision != 0 {
				t.Errorf("the owner finds %+v", res)
			}
		}
		g.empty()

		g.keep("r", "new")
		if _, err := g.commit(g.old("r"), 0); err != nil {
			t.Fatal(err)
		}
		if err := w.finish(t.Context(), "r", key, retired); err != nil || !g.there("r") || g.has("r") != allOf("new") {
			t.Errorf("after one that is late the new run has %s, error %v", g.has("r"), err)
		}
	}
}

// Where very many fail a round is cut short, and each has its turn in one of the next.
func TestManyRunsThatCannotBeRemovedTakeTurns(t *testing.T) {
	const runs = 2*maxFailures + 10
	g := newGround(t)
	var last drover.RunID
	for i := range runs {
		last = drover.RunID(fmt.Sprint("r", i))
		if _, err := g.commit(g.old(last), 0); err != nil {
			t.Fatal(err)
		}
	}
	f := whole()
	tried := map[drover.RunID]int{}
	f.refuses = func(write string, run drover.RunID) bool {
		if write == "values" {
			tried[run]++
		}
		return write == "values" && run != last
	}
	w := g.worker(f)
	for round := range 8 { // the first few find all
		before := len(tried)
		if err := w.cleanRuns(t.Context(), soon); !errors.Is(err, drover.CodeUnavailable) {
			t.Fatal(err)
		}
		if begun := len(tried) - before; round == 0 && (begun < maxFailures || begun > 2*maxFailures) {
			t.Errorf("%d were begun although they fail", begun)
		}
	}
	if g.there(last) || len(tried) != runs || tried[last] != 1 || len(w.failed) != runs-1 {
		t.Errorf("%d of %d were tried, %d are remembered, and the last one is there: %v", len(tried), runs, len(w.failed), g.there(last))
	}
	most, least := 0, runs
	for run, n := range tried {
		if run != last {
			most, least = max(most, n), min(least, n)
		}
	}
	if least < 2 || most-least > 4 {
		t.Errorf("one was tried %d times, another %d times", most, least)
	}
}
