package kv_test

import (
	"errors"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/internal/topology"
	"github.com/droverhq/drover/kv"
	"github.com/droverhq/drover/subjects"
)

// The list of a fleet whose subscribers come and go does not grow: what was
// unlisted is gone from the disk soon.
func TestUnlistedKeysLeaveTheServer(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, server *natstest.Server) {
		store, js := open(t, server, topology.Settings{})
		done := make(chan error, 200)
		for i := range 100 {
			key := subjects.DeliveryKey("x", i, "run", 0)
			store.Deliveries.List(key, kv.HintWaits, func(err error) { done <- err })
			store.Deliveries.Unlist(key, func(err error) { done <- err })
		}
		for range 200 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute) // of the fake clock
		stream, err := js.Stream(t.Context(), subjects.BucketStream(subjects.Default().Deliveries()))
		if err != nil {
			t.Fatal(err)
		}
		if left := stream.CachedInfo().State.Msgs; left != 0 {
			t.Fatalf("%d messages are left of what was unlisted", left)
		}
	})
}

// A secret that somebody has damaged is told, and not shown.
func TestDamagedSecret(t *testing.T) {
	store, js := open(t, natstest.New(t), topology.Settings{})
	if _, err := js.Publish(t.Context(), subjects.BucketKey(subjects.Default().Fleet(), subjects.SecretKey()), []byte("short")); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Fleet.Secret(t.Context()); !errors.Is(err, drover.CodeInternal) {
		t.Fatalf("error %v, want internal", err)
	}
}
