package topology

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/internal/publish"
	"github.com/droverhq/drover/subjects"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

// setUp gives a fleet with settings.
func setUp(t testing.TB, s *natstest.Server, asked Settings) (jetstream.JetStream, subjects.Names) {
	t.Helper()
	js := s.JetStream()
	if _, err := Ensure(t.Context(), js, subjects.Default(), asked); err != nil {
		t.Fatal(err)
	}
	return js, subjects.Default()
}

func TestManyWorkersSetUpOneFleet(t *testing.T) {
	s := natstest.New(t)
	var workers sync.WaitGroup
	got := make([]Settings, 8)
	for i := range got {
		js := s.JetStream()
		workers.Go(func() {
			var err error
			if got[i], err = Ensure(t.Context(), js, subjects.Default(), Settings{Partitions: 7, Storage: StorageMemory}); err != nil {
				t.Errorf("worker %d: %v", i, err)
			}
		})
	}
	workers.Wait()
	want := Settings{Partitions: 7, Replicas: 1, Storage: StorageMemory, Retention: drover.Duration(168 * time.Hour)}
	for i := range got {
		if got[i] != want {
			t.Errorf("worker %d has %+v, want %+v", i, got[i], want)
		}
	}
}

// A cluster refuses a write in this way while one of another worker to the same
// subject is on its way through it.
func TestASetUpWaitsForThatOfAnotherWorker(t *testing.T) {
	tries := 0
	err := insist(t.Context(), func(context.Context) error {
		if tries++; tries == 1 {
			return &jetstream.APIError{Code: 400, ErrorCode: 10164, Description: "wrong last sequence"}
		}
		return nil
	})
	if err != nil || tries != 2 {
		t.Errorf("after %d tries: %v", tries, err)
	}
}

func TestWorkersThatDisagreeSetUpOneFleet(t *testing.T) {
	s := natstest.New(t)
	var workers sync.WaitGroup
	var mu sync.Mutex
	agreed := map[Settings]int{}
	for i := range 8 {
		js := s.JetStream()
		workers.Go(func() {
			has, err := Ensure(t.Context(), js, subjects.Default(), Settings{Partitions: 1 + i})
			if err == nil {
				mu.Lock()
				agreed[has]++
				mu.Unlock()
			} else if !errors.Is(err, drover.CodeConflict) {
				t.Errorf("worker %d: %v", i, err)
			}
		})
	}
	workers.Wait()
	if len(agreed) != 1 {
		t.Fatalf("the workers that started have these settings: %v; exactly one must win", agreed)
	}
}

func TestSettingsAreThoseOfTheFleet(t *testing.T) {
	s := natstest.New(t)
	js, names := setUp(t, s, Settings{Partitions: 5, Retention: drover.Duration(time.Hour)})
	has, err := Ensure(t.Context(), js, names, Settings{})
	if err != nil || has.Partitions != 5 || has.Retention != drover.Duration(time.Hour) || has.Storage != StorageFile {
		t.Fatalf("settings %+v, error %v", has, err)
	}
	for _, tc := range []struct {
		asked Settings
		want  []string
	}{
		{Settings{Partitions: 6}, []string{"partitions is 5", "asks for 6"}},
		{Settings{Replicas: 3}, []string{"replicas is 1", "asks for 3"}},
		{Settings{Storage: StorageMemory}, []string{"storage is file", "asks for memory"}},
		{Settings{Retention: drover.Duration(time.Minute)}, []string{"retention is 1h0m0s", "asks for 1m0s"}},
		{Settings{Partitions: 6, Retention: drover.Duration(time.Minute)}, []string{"partitions is 5", "retention is 1h0m0s"}},
	} {
		_, err := Ensure(t.Context(), js, names, tc.asked)
		if !errors.Is(err, drover.CodeConflict) {
			t.Errorf("%+v: error %v, want a conflict", tc.asked, err)
			continue
		}
		for _, w := range tc.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%+v: error %q does not say %q", tc.asked, err, w)
			}
		}
	}
}

// TestOutcomesAreKeptAsLongAsTheirRuns: whatever the retention is, also where it
// is shorter than the server remembers message ids.
func TestOutcomesAreKeptAsLongAsTheirRuns(t *testing.T) {
	for _, retention := range []time.Duration{time.Second, 30 * 24 * time.Hour} {
		js, names := setUp(t, natstest.New(t), Settings{Retention: drover.Duration(retention)})
		stream, err := js.Stream(t.Context(), names.Outcomes())
		if err != nil {
			t.Fatal(err)
		}
		if got := stream.CachedInfo().Config.MaxAge; got != retention {
			t.Errorf("outcomes are kept for %v, runs for %v", got, retention)
		}
	}
}

func TestSettingsThatNoFleetMayHave(t *testing.T) {
	js := natstest.New(t).JetStream()
	_, err := Ensure(t.Context(), js, subjects.Default(), Settings{Partitions: 4097, Replicas: 2, Storage: "tape", Retention: -1})
	if !errors.Is(err, drover.CodeInvalidRequest) {
		t.Fatalf("error %v", err)
	}
	for _, w := range []string{"partitions is 4097", "replicas is 2", `storage is "tape"`, "retention is -1ns"} {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

func TestAStreamThatIsSetUpInAnotherWayIsRefused(t *testing.T) {
	js := natstest.New(t).JetStream()
	names := subjects.Default()
	cfg := outcomes(names, Defaults())
	cfg.MaxAge = time.Hour
	if _, err := js.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	_, err := Ensure(t.Context(), js, names, Settings{})
	if !errors.Is(err, drover.CodeConflict) || !strings.Contains(err.Error(), "age limit is 1h0m0s, and must be 168h0m0s") {
		t.Fatalf("error %v", err)
	}
	stream, err := js.Stream(t.Context(), names.Outcomes())
	if err != nil || stream.CachedInfo().Config.MaxAge != time.Hour {
		t.Fatalf("the stream was changed, or: %v", err)
	}
}

func TestASetUpThatDiedIsFinished(t *testing.T) {
	js := natstest.New(t).JetStream()
	names := subjects.Default()
	if _, err := js.CreateStream(t.Context(), fleet(names, Settings{Replicas: 1, Storage: StorageMemory})); err != nil {
		t.Fatal(err)
	}
	if _, err := Ensure(t.Context(), js, names, Settings{Storage: StorageFile}); !errors.Is(err, drover.CodeConflict) {
		t.Fatalf("error %v, want a conflict: the bucket is in memory", err)
	}
	has, err := Ensure(t.Context(), js, names, Settings{})
	if err != nil || has.Storage != StorageMemory || has.Partitions != 64 {
		t.Fatalf("settings %+v, error %v", has, err)
	}
}

func TestTwoFleetsShareAServer(t *testing.T) {
	js := natstest.New(t).JetStream()
	for i, prefix := range []string{"drover", "drover_2", "other"} {
		names, err := subjects.New(prefix)
		if err != nil {
			t.Fatal(err)
		}
		if has, err := Ensure(t.Context(), js, names, Settings{Partitions: i + 1}); err != nil || has.Partitions != i+1 {
			t.Fatalf("fleet %s: settings %+v, error %v", prefix, has, err)
		}
	}
}

func TestTheServerPartitionsAsSubjectsDoes(t *testing.T) {
	const runs = 10_000
	for _, partitions := range []int{1, 7, 64} {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) {
			s := natstest.New(t)
			js, names := setUp(t, s, Settings{Partitions: partitions, Storage: StorageMemory})
			p, err := publish.New(s.Connect(), publish.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			var all sync.WaitGroup
			all.Add(runs)
			for i := range runs {
				run := drover.KeyRunID("caller", fmt.Sprint(i))
				p.Publish(nats.NewMsg(names.In(run, drover.VerbTick)), func(_ publish.Ack, err error) {
					if err != nil {
						t.Errorf("run %s: %v", run, err)
					}
					all.Done()
				})
			}
			all.Wait()
			seen := 0
			for m := range headers(t, js, names.Commands(), names.CommandAll()) {
				partition, run, verb, ok := names.ParseCommand(m.Subject())
				if !ok || verb != "tick" || partition != subjects.Partition(run, partitions) {
					t.Fatalf("subject %s, want partition %d", m.Subject(), subjects.Partition(run, partitions))
				}
				seen++
			}
			if seen != runs {
				t.Fatalf("%d commands in the stream, want %d", seen, runs)
			}
		})
	}
}

// headers gives every message that is in a stream now.
func headers(t *testing.T, js jetstream.JetStream, stream, filter string) func(func(jetstream.Msg) bool) {
	t.Helper()
	return func(yield func(jetstream.Msg) bool) {
		c, err := js.OrderedConsumer(t.Context(), stream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{filter}})
		if err != nil {
			t.Fatal(err)
		}
		it, err := c.Messages()
		if err != nil {
			t.Fatal(err)
		}
		defer it.Stop()
		for {
			m, err := it.Next()
			if err != nil {
				t.Fatal(err)
			}
			meta, err := m.Metadata()
			if err != nil {
				t.Fatal(err)
			}
			if !yield(m) || meta.NumPending == 0 {
				return
			}
		}
	}
}

func TestAFullServerRefusesAndDropsNothing(t *testing.T) {
	s := natstest.New(t, natstest.With(func(o *server.Options) { o.JetStreamMaxMemory = 80 << 20 }))
	js, names := setUp(t, s, Settings{Storage: StorageMemory})
	big := make([]byte, 1<<20)
	var stored uint64
	var err error
	for err == nil && stored < 200 {
		if _, err = js.Publish(t.Context(), names.In("run", drover.VerbTick), big); err == nil {
			stored++
		}
	}
	if err == nil {
		t.Fatal("200 MiB were accepted, but the server has 80")
	}
	stream, err := js.Stream(t.Context(), names.Commands())
	if err != nil {
		t.Fatal(err)
	}
	if st := stream.CachedInfo().State; st.Msgs != stored || st.FirstSeq != 1 {
		t.Fatalf("%d commands were acknowledged, the stream has %d from sequence %d", stored, st.Msgs, st.FirstSeq)
	}
}

func TestBucketsAreBuckets(t *testing.T) {
	js, names := setUp(t, natstest.New(t), Settings{})
	for _, b := range []string{names.Runs(), names.Values(), names.Definitions(), names.Hooks(), names.Fleet()} {
		kv, err := js.KeyValue(t.Context(), b)
		if err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if _, err := kv.Put(t.Context(), "a.b", []byte("1")); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if e, err := kv.Get(t.Context(), "a.b"); err != nil || string(e.Value()) != "1" {
			t.Fatalf("%s: %v", b, err)
		}
	}
}

func TestCluster(t *testing.T) {
	c := natstest.NewCluster(t, 3)
	var workers sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, s := range c.Servers {
		js := s.JetStream()
		workers.Go(func() {
			if has, err := Ensure(ctx, js, subjects.Default(), Settings{Replicas: 3}); err != nil || has.Replicas != 3 {
				t.Errorf("settings %+v, error %v", has, err)
			}
		})
	}
	workers.Wait()
}

func TestCheckPayload(t *testing.T) {
	for _, tc := range []struct {
		payload int32
		limit   int64
		says    string
	}{
		{8 << 20, drover.MaxValue, ""},
		{1<<20 + 64<<10, drover.MaxValue, ""},
		{1 << 20, 1<<20 - 64<<10, "messages of 1048576 bytes, so that a value may have only 983040"},
		{1000, 0, "only 0 bytes"},
	} {
		s := natstest.New(t, natstest.With(func(o *server.Options) { o.MaxPayload = tc.payload }))
		limit, err := CheckPayload(s.Connect())
		if limit != tc.limit || (err != nil) != (tc.says != "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("payload %d: limit %d, error %v", tc.payload, limit, err)
		}
	}
}
