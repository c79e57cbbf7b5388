package integration_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/internal/natstest"
)

// programs serves programs in the test's own process until stop, or the end of
// the test.
func (f *fleet) programs(opts flow.Options, list ...*flow.Def) (stop func()) {
	f.t.Helper()
	opts.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	s, err := flow.NewServer(dial(f.t, f.url), opts, list...)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }() // stop waits for it
	stop = sync.OnceFunc(func() {
		cancel()
		if err := await(f.t, done, "the end of the programs"); err != nil {
			f.t.Errorf("programs: %v", err)
		}
	})
	f.t.Cleanup(stop)
	await(f.t, s.Ready(), "the programs")
	return stop
}

// written is what the fleet has stored, as it comes by.
type written struct{ messages, bytes, record atomic.Int64 }

// counting counts what is stored from now on, and keeps the size of the biggest
// record.
func (f *fleet) counting() *written {
	f.t.Helper()
	w := &written{}
	for _, subject := range []string{"$KV." + names.Runs() + ".>", "$KV." + names.Values() + ".>", "drover.in.>", "drover.call.>"} {
		sub, err := f.nc.Subscribe(subject, func(m *nats.Msg) {
			w.messages.Add(1)
			w.bytes.Add(int64(len(m.Data)))
			if strings.HasPrefix(m.Subject, "$KV."+names.Runs()+".") {
				w.record.Store(max(w.record.Load(), int64(len(m.Data))))
			}
		})
		if err == nil {
			err = sub.SetPendingLimits(-1, -1)
		}
		if err != nil {
			f.t.Fatal(err)
		}
	}
	if err := f.nc.Flush(); err != nil {
		f.t.Fatal(err)
	}
	return w
}

// mark is what was written, and when.
type mark struct {
	messages, bytes int64
	at              time.Time
}

// The last steps of a thousand cost what the first ones cost: as many messages,
// and no more bytes.
func TestPrograms16AThousandSteps(t *testing.T) {
	t.Parallel()
	const steps, part = 1000, 100
	f := connect(t, natstest.New(t, natstest.Listen()).URL())
	newCrew(f, 1, patient...)
	w := f.counting()
	marks := make(chan mark, steps/part+1)
	var bodies, done atomic.Int64
	f.programs(flow.Options{}, flow.Program("thousand", func(run *flow.Run, _ any) (sum int, err error) {
		bodies.Add(1)
		for i := range steps {
			n, err := flow.Step(run, fmt.Sprint("step", i), func(context.Context) (int, error) {
				if done.Add(1); i%part == 0 {
					// All that was stored before has come by, as it was answered.
					if err := f.nc.Flush(); err != nil {
						return 0, err
					}
					marks <- mark{w.messages.Load(), w.bytes.Load(), time.Now()}
				}
				return i, nil
			})
			if err != nil {
				return 0, err
			}
			sum += n
		}
		return sum, nil
	}))
	f.begins("r1", "thousand", "null")
	f.completes("r1", fmt.Sprint(steps*(steps-1)/2))
	marks <- mark{w.messages.Load(), w.bytes.Load(), time.Now()}
	close(marks)
	var all []mark
	for m := range marks {
		all = append(all, m)
	}
	spent := func(i int) mark {
		a, b := all[i], all[i+1]
		return mark{messages: b.messages - a.messages, bytes: b.bytes - a.bytes, at: time.Time{}.Add(b.at.Sub(a.at))}
	}
	first, last := spent(1), spent(len(all)-2) // the first of all has the record small
	t.Logf("steps %d to %d: %d messages, %d bytes; the last %d: %d and %d, time %.2f of that; the biggest record has %d bytes",
		part, 2*part, first.messages, first.bytes, part, last.messages, last.bytes,
		float64(last.at.Sub(time.Time{}))/float64(first.at.Sub(time.Time{})), w.record.Load())
	if last.messages > first.messages+first.messages/10+10 || last.bytes > first.bytes*13/10 {
		t.Error("the last steps cost more than the first ones")
	}
	if size := w.record.Load(); size > 64<<10 {
		t.Errorf("the record has %d bytes", size)
	}
	if n, b := done.Load(), bodies.Load(); n != steps || b != 1 {
		t.Errorf("%d steps were done by %d bodies, want %d and 1", n, b, steps)
	}
	if entries := f.history("r1"); len(entries) != steps || entries[steps-1].Number != steps || entries[steps-1].ID != fmt.Sprint("step", steps-1) {
		t.Errorf("the journal has %d entries", len(entries))
	}
}
