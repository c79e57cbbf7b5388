package kv_test

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"testing"

	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/internal/topology"
	"github.com/droverhq/drover/kv"
)

func BenchmarkCommit(b *testing.B) {
	store, _ := open(b, natstest.New(b), topology.Settings{})
	const runs = 1000
	data := make([]byte, 600)
	revisions := make([]uint64, runs)
	batch := make([]kv.Commit, 0, runs)
	b.ReportAllocs()
	for left := b.N; left > 0; left -= runs {
		var all sync.WaitGroup
		batch = batch[:0]
		for i := range min(left, runs) {
			all.Add(1)
			batch = append(batch, kv.Commit{Key: "1." + strconv.Itoa(i), Revision: revisions[i], Data: data, Done: func(r uint64, err error) {
				if err != nil {
					b.Error(err)
				}
				revisions[i] = r
				all.Done()
			}})
		}
		store.Runs.Commit(batch)
		all.Wait()
	}
}

func BenchmarkScan(b *testing.B) {
	store, _ := open(b, natstest.New(b), topology.Settings{})
	const runs = 10_000
	for i := range runs {
		store.Runs.Commit([]kv.Commit{{Key: "1." + strconv.Itoa(i), Data: make([]byte, 600), Done: func(uint64, error) {}}})
	}
	if _, err := commit(store, "2.x", 0, "x"); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		n := 0
		err := store.Runs.Scan(context.Background(), func(string, kv.Record) bool { n++; return true })
		if err != nil || n != runs+1 {
			b.Fatalf("%d records, error %v", n, err)
		}
	}
	b.ReportMetric(float64(runs*b.N)/b.Elapsed().Seconds(), "records/s")
}

func BenchmarkLoad(b *testing.B) {
	store, _ := open(b, natstest.New(b), topology.Settings{})
	if _, err := commit(store, "1.x", 0, "x"); err != nil {
		b.Fatal(err)
	}
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := store.Runs.Load(context.Background(), "1.x"); err != nil {
				b.Error(err)
			}
		}
	})
}

func BenchmarkGetValues(b *testing.B) {
	store, _ := open(b, natstest.New(b), topology.Settings{})
	const values = 1000
	var keys []string
	var all sync.WaitGroup
	for i := range values {
		key := "r.node.n." + strconv.Itoa(i) + ".1"
		keys = append(keys, key)
		all.Add(1)
		store.Values.Put(key, json.RawMessage(make([]byte, 4096)), func(error) { all.Done() })
	}
	all.Wait()
	for b.Loop() {
		if got, err := store.Values.Get(context.Background(), keys); err != nil || len(got) != values {
			b.Fatalf("%d values, error %v", len(got), err)
		}
	}
	b.ReportMetric(float64(values*b.N)/b.Elapsed().Seconds(), "values/s")
}
