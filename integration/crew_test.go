package integration_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/subjects"
)

// parts is how many partitions the fleets of these tests have.
const parts = 16

// lease is how long these tests leave a worker that is gone unmissed: the
// shortest that there is.
const lease = time.Second

// place is what is stored of a partition.
type place struct {
	Worker string
	Epoch  uint64
	Cursor uint64
}

// name of the owner, which its id begins with.
func (p place) name() string {
	name, _, _ := strings.Cut(p.Worker, "-")
	return name
}

// places reads who owns what, by partition.
func (f *fleet) places() (map[int]place, error) {
	ctx, cancel := context.WithTimeout(context.Background(), answer)
	defer cancel()
	bucket, err := f.js.KeyValue(ctx, names.Fleet())
	if err != nil {
		return nil, err // nobody has set the fleet up, or no server lives
	}
	watch, err := bucket.Watch(ctx, "partition.*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = watch.Stop() }()
	all := map[int]place{}
	for {
		select {
		case e := <-watch.Updates():
			if e == nil {
				return all, nil
			}
			n, p, err := readPlace(e.Key(), e.Value())
			if err != nil {
				return nil, err
			}
			all[n] = p
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func readPlace(key string, data []byte) (n int, p place, err error) {
	_, err = fmt.Sscanf(key, "partition.%d", &n)
	return n, p, errors.Join(err, json.Unmarshal(data, &p))
}

// placed is who owns what, while a server lives.
func (f *fleet) placed() map[int]place {
	f.t.Helper()
	all, err := f.places()
	if err != nil {
		f.t.Fatal(err)
	}
	return all
}

// untilPlaces reads who owns what, again and again, until it is as it should be.
func (f *fleet) untilPlaces(what string, so func(map[int]place) bool) map[int]place {
	f.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var got map[int]place
	until(f.t, what, func() bool {
		<-tick.C
		var err error
		got, err = f.places()
		return err == nil && so(got)
	})
	return got
}

// shared waits until so many workers have partitions, and every partition has
// one of them.
func (f *fleet) shared(workers int) {
	f.t.Helper()
	f.untilPlaces("workers that share the partitions", func(all map[int]place) bool {
		owners := map[string]bool{}
		for _, p := range all {
			owners[p.Worker] = true
		}
		return len(all) == parts && len(owners) == workers && !owners[""]
	})
}

// crew is workers of a fleet, each a process, that are replaced one by one.
type crew struct {
	f       *fleet
	flags   []string
	hired   int
	members map[string]*process // by name
	all     []*process          // also those who are gone
}

func newCrew(f *fleet, size int, flags ...string) *crew {
	f.t.Helper()
	c := &crew{f: f, flags: flags, members: map[string]*process{}}
	for range size {
		c.hire()
	}
	c.settled()
	return c
}

// hire starts one more worker.
func (c *crew) hire() string {
	c.f.t.Helper()
	c.hired++
	name := fmt.Sprintf("w%d", c.hired)
	flags := append([]string{
		"serve", "--nats", c.f.url, "--name", name, "--lease", lease.String(), "--partitions", fmt.Sprint(parts), "--log-level", "warn",
	}, c.flags...)
	c.members[name] = launch(c.f.t, flags...)
	c.all = append(c.all, c.members[name])
	return name
}

// oldest is the name of the member that was hired first.
func (c *crew) oldest() string {
	return slices.MinFunc(slices.Collect(maps.Keys(c.members)), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
}

// kill ends a member as a power switch does.
func (c *crew) kill(name string) {
	c.members[name].signal(syscall.SIGKILL)
	c.gone(name, false)
}

// ask has a member end.
func (c *crew) ask(name string) {
	c.f.t.Helper()
	c.members[name].signal(syscall.SIGTERM)
	c.gone(name, true)
}

// gone waits for the end of a member. One that was asked to end is to do so as
// it should.
func (c *crew) gone(name string, asked bool) {
	c.f.t.Helper()
	status, _, stderr := c.members[name].wait()
	if asked && status != 0 {
		c.f.t.Errorf("worker %s: exit status %d\n%s", name, status, stderr)
	}
	delete(c.members, name)
}

// patient are flags of a crew that nobody kills, and whose leases are not to run
// out, however busy the machine is.
var patient = []string{"--lease", "10s"}

// undisturbed demands that no worker, gone or not, lost a partition, or had to
// leave one as it was.
func (c *crew) undisturbed() {
	c.f.t.Helper()
	for _, p := range c.all {
		for line := range strings.Lines(p.tail()) {
			if strings.Contains(line, "taken by another") || strings.Contains(line, "lost to another") || strings.Contains(line, "in time") {
				c.f.t.Errorf("although nothing crashed: %s", line)
			}
		}
	}
}

// settled waits until the members, and nobody else, own all partitions, and none
// has more than its share.
func (c *crew) settled() map[int]place {
	c.f.t.Helper()
	return c.f.untilPlaces("members that share the partitions", func(all map[int]place) bool {
		load := map[string]int{}
		for _, p := range all {
			load[p.name()]++
		}
		for name := range c.members {
			if load[name] == 0 || load[name] > (parts+len(c.members)-1)/len(c.members) {
				return false
			}
		}
		return len(all) == parts && len(load) == len(c.members)
	})
}

// owned is what a member has of all partitions.
func owned(all map[int]place, name string) map[int]place {
	mine := maps.Clone(all)
	maps.DeleteFunc(mine, func(_ int, p place) bool { return p.name() != name })
	return mine
}

// passedOn reports whether all that somebody had has another owner, and a later
// epoch.
func passedOn(had, now map[int]place) bool {
	for n, p := range had {
		if got := now[n]; got.Epoch <= p.Epoch || got.Worker == "" || got.Worker == p.Worker {
			return false
		}
	}
	return len(had) > 0
}

// toil is runs of ten calls, one after another, and how often each call came.
type toil struct {
	*crashed
	calls *tally // by call id
}

// each is how many calls a run of toil has.
const each = 10

func newToil(f *fleet, others ...breed) *toil {
	f.t.Helper()
	var nodes strings.Builder
	fmt.Fprintf(&nodes, "nodes:\n  s1: {call: step}\n")
	for n := 2; n <= each; n++ {
		fmt.Fprintf(&nodes, "  s%d: {call: step, input: {from: \"node:s%d\"}}\n", n, n-1)
	}
	fmt.Fprintf(&nodes, "output: {from: \"node:s%d\"}\n", each)
	l := &toil{crashed: newCrashed(f), calls: newTally()}
	l.breeds = append([]breed{{
		name: "toil", input: `7`, status: drover.StatusCompleted, result: fmt.Sprint(7 + each), definition: nodes.String(),
	}}, others...)
	f.serve(function.New("step", func(ctx context.Context, n int) (int, error) {
		l.calls.add(function.Info(ctx).ID.String(), "called")
		return n + 1, nil
	}))
	return l
}

// beneath begins runs, so many at once, until the function that it gives is
// called, which returns when no start is under way any more.
func (w *crashed) beneath(atOnce int) (enough func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { // enough waits for it
		defer close(done)
		w.begin(ctx, atOnce)
	}()
	enough = func() {
		cancel()
		<-done
	}
	w.t.Cleanup(enough)
	return enough
}

// goesOn waits until so many more runs are over, and those that it concerns know
// of it.
func (w *crashed) goesOn(more int) {
	w.t.Helper()
	for more += w.told.len(); w.told.len() < more; {
		await(w.t, w.told.more, "a run that ends")
	}
}

// allTold waits until the subscribers of all runs were told.
func (w *crashed) allTold() {
	w.t.Helper()
	for left := w.untold(); left > 0; left = w.untold() {
		await(w.t, w.told.more, fmt.Sprintf("the outcomes of %d more runs", left))
	}
}

func (w *crashed) untold() (left int) {
	for run := range w.runs {
		if len(w.told.of(string(run))) == 0 {
			left++
		}
	}
	return left
}

// quiet waits until everything that is in the log is done: no partition has
// anything left to do.
func (f *fleet) quiet() {
	f.t.Helper()
	f.untilPlaces("cursors behind the last command", func(all map[int]place) bool {
		ctx, cancel := context.WithTimeout(context.Background(), answer)
		defer cancel()
		stream, err := f.js.Stream(ctx, names.Commands())
		for n := 0; err == nil && n < parts; n++ {
			var last *jetstream.RawStreamMsg
			last, err = stream.GetLastMsgForSubject(ctx, names.CommandsOf(n))
			switch {
			case errors.Is(err, jetstream.ErrMsgNotFound):
				err = nil
			case err == nil && last.Sequence >= all[n].Cursor:
				return false
			}
		}
		return err == nil
	})
}

// records is every record, as it is stored.
func (f *fleet) records() map[string]string {
	f.t.Helper()
	all := map[string]string{}
	for _, m := range f.all(subjects.BucketStream(names.Runs())) {
		meta, err := m.Metadata()
		if err != nil {
			f.t.Fatal(err)
		}
		all[m.Subject()] = fmt.Sprintf("%d %s", meta.Sequence.Stream, m.Data())
	}
	return all
}
