package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/kv"
)

const (
	// healthy is how old the oldest command that is not done may be where all
	// is well: an owner holds the cursor at the last command of a run for 10 s
	// before its wake-up is made durable, and saves the cursor once a second.
	healthy = 20 * time.Second
	// maxLooks is how many partitions are looked at at a time.
	maxLooks = 16
)

// fleet puts together what the bucket of the fleet and the log say.
func (s *Service) fleet(ctx context.Context, _ *struct{}) (any, error) {
	members, err := kv.First(ctx, s.Fleet.WatchMembers)
	if err != nil {
		return nil, err
	}
	owned, err := kv.First(ctx, s.Fleet.WatchPartitions)
	if err != nil {
		return nil, err
	}
	reply := drover.FleetReply{Members: []drover.Member{}, Partitions: make([]drover.Partition, s.Partitions)}
	for i := range reply.Partitions {
		reply.Partitions[i].Number = i
	}
	for _, p := range owned {
		if p.Number < len(reply.Partitions) {
			reply.Partitions[p.Number] = drover.Partition{Number: p.Number, Worker: p.Worker, Epoch: p.Epoch, Cursor: p.Cursor}
		}
	}
	if err := s.lags(ctx, reply.Partitions); err != nil {
		return nil, err
	}
	if reply.Dead, err = s.buried(ctx); err != nil {
		return nil, err
	}
	live := map[string]bool{}
	for _, m := range members {
		live[m.ID] = true
		reply.Members = append(reply.Members, member(m, reply.Partitions))
	}
	slices.SortStableFunc(reply.Members, func(a, b drover.Member) int { return cmp.Compare(a.Name, b.Name) })
	judge(reply.Partitions, live, time.Now())
	return reply, nil
}

// judge says which partitions are slow.
func judge(partitions []drover.Partition, live map[string]bool, now time.Time) {
	for i := range partitions {
		p := &partitions[i]
		p.Slow = !live[p.Worker] || p.Oldest != nil && now.Sub(*p.Oldest) > healthy
	}
}

// member reads what a worker tells of itself.
func member(m kv.Member, partitions []drover.Partition) drover.Member {
	shown := drover.Member{}
	_ = json.Unmarshal(m.Info, &shown) // another version's may say less
	shown.ID, shown.Partitions = m.ID, 0
	shown.Name = cmp.Or(shown.Name, m.ID)
	for _, p := range partitions {
		if p.Worker == m.ID {
			shown.Partitions++
		}
	}
	return shown
}

// lags finds out how much of the log lies behind each cursor.
func (s *Service) lags(ctx context.Context, partitions []drover.Partition) error {
	stream, err := s.js.Stream(ctx, s.Names.Commands())
	if err != nil {
		return err
	}
	var working sync.WaitGroup
	slots := make(chan struct{}, maxLooks)
	failed := make([]error, len(partitions))
	for i := range partitions {
		slots <- struct{}{}
		working.Go(func() {
			defer func() { <-slots }()
			failed[i] = s.lag(ctx, stream, &partitions[i])
		})
	}
	working.Wait()
	return errors.Join(failed...)
}

// lag asks for the first command that is not done. Most partitions have none,
// and that is all. For the others a consumer, which delivers nothing, has the
// server count: its stream info counts by subject only, and from the beginning.
func (s *Service) lag(ctx context.Context, stream jetstream.Stream, p *drover.Partition) error {
	cursor, filter := max(p.Cursor, 1), s.Names.CommandsOf(p.Number)
	oldest, err := s.stored(ctx, s.Names.Commands(), nextOn{cursor, filter})
	if errors.Is(err, drover.CodeNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	c, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		FilterSubject: filter, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: oldest.Sequence,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: time.Minute,
	})
	if err != nil {
		return err
	}
	defer s.forget(ctx, stream, c)
	at := oldest.Time.UTC()
	p.Lag, p.Oldest = c.CachedInfo().NumPending, &at
	return nil
}

// buried counts the dead letters.
func (s *Service) buried(ctx context.Context) (uint64, error) {
	stream, err := s.js.Stream(ctx, s.Names.DeadLetters())
	if err != nil {
		return 0, err
	}
	return stream.CachedInfo().State.Msgs, nil
}
