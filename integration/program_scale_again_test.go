package integration_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/subjects"
)

// stored are the keys of the values of a run.
func (f *fleet) stored(run drover.RunID) (keys []string) {
	f.t.Helper()
	bucket := "$KV." + names.Values() + "."
	stream, err := f.js.Stream(f.t.Context(), subjects.BucketStream(names.Values()))
	if err != nil {
		f.t.Fatal(err)
	}
	info, err := stream.Info(f.t.Context(), jetstream.WithSubjectFilter(bucket+subjects.ValuesOf(run)))
	if err != nil {
		f.t.Fatal(err)
	}
	for subject := range info.State.Subjects {
		keys = append(keys, strings.TrimPrefix(subject, bucket))
	}
	return keys
}

// Programs that begin anew again and again, each time with big values, leave
// nothing of their earlier journals in the bucket, also where workers are killed
// between a commit and what follows from it: what such a one did not remove goes the
// next time, so that of the last time alone may be left.
func TestPrograms16LivesOfManyJournals(t *testing.T) {
	t.Parallel()
	runs, lives, kills := 20, 30, 4
	if testing.Short() {
		runs, lives, kills = 10, 10, 1
	}
	f := connect(t, natstest.New(t, natstest.Listen()).URL())
	c := newCrew(f, 2)
	begun := make(chan struct{}, 2*runs*lives)
	f.programs(flow.Options{DrainTimeout: time.Second}, flow.Program("phoenix", func(run *flow.Run, in struct {
		Life int
		Pad  string
	},
	) (int, error) {
		pad := strings.Repeat("x", 3000)
		if _, err := flow.Step(run, "big", func(context.Context) (string, error) { return pad, nil }); err != nil {
			return 0, err
		}
		said, err := flow.Wait[string](run, "word", "word")
		if err != nil || len(said) != len(pad) || in.Life > 1 && in.Pad != pad {
			return 0, fmt.Errorf("life %d was told %d bytes, and began with %d: %w", in.Life, len(said), len(in.Pad), err)
		}
		if in.Life == lives {
			return in.Life, nil
		}
		begun <- struct{}{}
		in.Life, in.Pad = in.Life+1, pad
		return 0, run.ContinueAsNew(in)
	}))
	name := func(i int) drover.RunID { return drover.RunID(fmt.Sprint("phoenix-", i)) }
	word := drover.DeliverRequest{Name: "word", Payload: []byte(`"` + strings.Repeat("w", 3000) + `"`)}
	for i := range runs {
		f.begins(name(i), "phoenix", `{"Life":1}`)
		for range lives {
			f.publish(name(i), drover.VerbDeliver, word)
		}
	}
	for range kills {
		for range runs * lives / (kills + 1) {
			await(t, begun, "a life that begins")
		}
		c.kill(c.oldest())
		c.hire()
		c.settled()
	}
	for i := range runs {
		f.completes(name(i), fmt.Sprint(lives))
	}
	for i := range runs {
		run := name(i)
		eventually(t, "values of the last lives alone", func() bool {
			for _, key := range f.stored(run) {
				generation, journal := subjects.GenerationOfKey(run, key)
				if _, delivered := subjects.DeliveredOfKey(run, key); journal && generation < lives-2 || !journal && !delivered {
					return false
				}
			}
			return len(f.stored(run)) <= 16
		})
	}
}
