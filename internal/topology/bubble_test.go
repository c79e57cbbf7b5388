package topology

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/subjects"
)

// A timer becomes a tick in the log of its run, at its time to the fraction of
// a second, through the same transform as everyone's commands.
func TestATimerBecomesATickOfItsRun(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, s *natstest.Server) {
		js, names := setUp(t, s, Settings{})
		const run = drover.RunID("k_0123456789abcdef0123456789abcdef")
		partition := subjects.Partition(string(run), 64)
		c, err := js.OrderedConsumer(t.Context(), names.Commands(), jetstream.OrderedConsumerConfig{
			FilterSubjects: []string{names.CommandsOf(partition)},
		})
		if err != nil {
			t.Fatal(err)
		}
		it, err := c.Messages()
		if err != nil {
			t.Fatal(err)
		}
		defer it.Stop()
		for applied, wait := range []time.Duration{1250 * time.Millisecond, 36*time.Hour + 70*time.Millisecond, -time.Minute} {
			at := time.Now().Add(wait)
			m := nats.NewMsg(names.Timer(run, uint64(applied)))
			m.Header.Set(subjects.HeaderSchedule, "@at "+at.UTC().Format(time.RFC3339Nano))
			m.Header.Set(subjects.HeaderScheduleTarget, names.In(run, drover.VerbTick))
			if _, err := js.PublishMsg(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			tick, err := it.Next()
			if err != nil {
				t.Fatal(err)
			}
			p, gotRun, verb, ok := names.ParseCommand(tick.Subject())
			if !ok || p != partition || gotRun != string(run) || verb != "tick" || len(tick.Data()) != 0 {
				t.Fatalf("subject %q, %d bytes", tick.Subject(), len(tick.Data()))
			}
			meta, err := tick.Metadata()
			if err != nil {
				t.Fatal(err)
			}
			// A time that is past means at once, which the server looks for
			// within a second.
			late := meta.Timestamp.Sub(at)
			if wait > 0 && (late < 0 || late > 100*time.Millisecond) || wait < 0 && late > time.Minute+time.Second {
				t.Errorf("the tick for in %v came %v late", wait, late)
			}
		}
		stream, err := js.Stream(t.Context(), names.Commands())
		if err != nil {
			t.Fatal(err)
		}
		if n := stream.CachedInfo().State.Msgs; n != 3 {
			t.Errorf("%d messages in the stream, want the 3 ticks: a timer is gone when it fired", n)
		}
	})
}

// The purge of a partition's commands leaves timers alone.
func TestPurgeOfAPartitionLeavesTimers(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, s *natstest.Server) {
		js, names := setUp(t, s, Settings{Partitions: 1})
		m := nats.NewMsg(names.Timer("run", 1))
		m.Header.Set(subjects.HeaderSchedule, "@at "+time.Now().Add(time.Hour).UTC().Format(time.RFC3339Nano))
		m.Header.Set(subjects.HeaderScheduleTarget, names.In("run", drover.VerbTick))
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := js.Publish(t.Context(), names.In("run", drover.VerbTick), nil); err != nil {
				t.Fatal(err)
			}
		}
		stream, err := js.Stream(t.Context(), names.Commands())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject(names.CommandsOf(0)), jetstream.WithPurgeSequence(4)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		tick, err := stream.GetLastMsgForSubject(t.Context(), names.CommandsOf(0))
		if err != nil || tick.Sequence != 5 {
			t.Fatalf("last command %+v, error %v; want the tick with sequence 5", tick, err)
		}
	})
}
