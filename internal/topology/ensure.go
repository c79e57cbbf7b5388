package topology

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// patience is how long Ensure tries while the server cannot answer, as one that
// is just starting, where its context sets no deadline.
const patience = 30 * time.Second

// Ensure makes what is missing of a fleet, and gives the settings that it has.
// It waits for a server that cannot answer yet until ctx ends, or half a minute
// where ctx has no deadline.
//
// The error is drover.CodeConflict where the fleet has other settings than the
// ones asked for, or a stream is there that is set up in another way, and names
// both values; drover.CodeInvalidRequest for settings that no fleet may have.
func Ensure(ctx context.Context, js jetstream.JetStream, n subjects.Names, asked Settings) (Settings, error) {
	if err := asked.check(); err != nil {
		return Settings{}, err
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	var has Settings
	err := insist(ctx, func(ctx context.Context) (err error) {
		has, err = settle(ctx, js, n, asked)
		return err
	})
	if err != nil {
		return Settings{}, err
	}
	for _, cfg := range streams(n, has) {
		err := insist(ctx, func(ctx context.Context) error {
			_, err := ensureStream(ctx, js, cfg)
			return err
		})
		if err != nil {
			return Settings{}, err
		}
	}
	return has, nil
}

// settle finds the settings of the fleet, or sets it up with those asked for.
func settle(ctx context.Context, js jetstream.JetStream, n subjects.Names, asked Settings) (Settings, error) {
	want := asked.or(Defaults())
	stream, err := js.Stream(ctx, subjects.BucketStream(n.Fleet()))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = create(ctx, js, fleet(n, want))
	}
	if err != nil {
		return Settings{}, err
	}
	// Whoever made the bucket decided on these two, even if it died before it
	// could write the settings.
	cfg := stream.CachedInfo().Config
	want.Replicas, want.Storage = cfg.Replicas, StorageFile
	if cfg.Storage == jetstream.MemoryStorage {
		want.Storage = StorageMemory
	}
	if err := compare(cfg, fleet(n, want)); err != nil {
		return Settings{}, err
	}
	if err := want.disagree(Settings{Replicas: asked.Replicas, Storage: asked.Storage}); err != nil {
		return Settings{}, err
	}
	if err := writeOnce(ctx, js, n, want); err != nil {
		return Settings{}, err
	}
	has, err := read(ctx, stream, n)
	if err != nil {
		return Settings{}, err
	}
	return has, has.disagree(asked)
}

// writeOnce stores the settings, unless there are some.
func writeOnce(ctx context.Context, js jetstream.JetStream, n subjects.Names, s Settings) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	msg := nats.NewMsg(subjects.BucketKey(n.Fleet(), subjects.SettingsKey()))
	msg.Data = data
	_, err = js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(0))
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return nil
	}
	return err
}

func read(ctx context.Context, stream jetstream.Stream, n subjects.Names) (Settings, error) {
	msg, err := stream.GetLastMsgForSubject(ctx, subjects.BucketKey(n.Fleet(), subjects.SettingsKey()))
	if err != nil {
		return Settings{}, err
	}
	var s Settings
	if err := json.Unmarshal(msg.Data, &s); err != nil {
		return Settings{}, drover.Errorf(drover.CodeInternal,
			"key %q of bucket %q does not hold the settings of a fleet: %v", subjects.SettingsKey(), n.Fleet(), err)
	}
	if s != s.or(Defaults()) || s.check() != nil {
		return Settings{}, drover.Errorf(drover.CodeInternal,
			"key %q of bucket %q holds settings that no fleet may have: %s", subjects.SettingsKey(), n.Fleet(), msg.Data)
	}
	return s, nil
}

// ensureStream makes a stream, or checks that the one there is set up alike.
func ensureStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) (jetstream.Stream, error) {
	stream, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = create(ctx, js, want)
	}
	if err != nil {
		return nil, err
	}
	return stream, compare(stream.CachedInfo().Config, want)
}

// create makes a stream, or gives the one that somebody made meanwhile.
func create(ctx context.Context, js jetstream.JetStream, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	stream, err := js.CreateStream(ctx, cfg)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return js.Stream(ctx, cfg.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("stream %q: %w", cfg.Name, err)
	}
	return stream, nil
}

// compare names every setting of a stream that matters and differs. Those that
// do not matter, such as placement, compression and metadata, are the operator's.
func compare(has, want jetstream.StreamConfig) error {
	var bad []string
	for _, f := range []struct {
		name      string
		has, want any
	}{
		{"subjects", has.Subjects, want.Subjects},
		{"subject transform", transform(has), transform(want)},
		{"retention policy", has.Retention, want.Retention},
		{"storage", has.Storage, want.Storage},
		{"replicas", has.Replicas, want.Replicas},
		{"discard policy", has.Discard, want.Discard},
		{"message limit", has.MaxMsgs, want.MaxMsgs},
		{"message limit of a subject", has.MaxMsgsPerSubject, want.MaxMsgsPerSubject},
		{"byte limit", has.MaxBytes, want.MaxBytes},
		{"age limit", has.MaxAge, want.MaxAge},
		{"message size limit", has.MaxMsgSize, want.MaxMsgSize},
		{"duplicate window", has.Duplicates, want.Duplicates},
		{"direct reads", has.AllowDirect, want.AllowDirect},
		{"roll-ups", has.AllowRollup, want.AllowRollup},
		{"message TTLs", has.AllowMsgTTL, want.AllowMsgTTL},
		{"message schedules", has.AllowMsgSchedules, want.AllowMsgSchedules},
		{"atomic publish", has.AllowAtomicPublish, want.AllowAtomicPublish},
		{"delete marker TTL", has.SubjectDeleteMarkerTTL, want.SubjectDeleteMarkerTTL},
		{"delete is denied", has.DenyDelete, want.DenyDelete},
		{"purge is denied", has.DenyPurge, want.DenyPurge},
		{"sealed", has.Sealed, want.Sealed},
	} {
		if !reflect.DeepEqual(f.has, f.want) {
			bad = append(bad, fmt.Sprintf("%s is %v, and must be %v", f.name, f.has, f.want))
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return drover.Errorf(drover.CodeConflict,
		"stream %q is there and set up in another way: %s; change it back, or use another prefix for this fleet",
		want.Name, strings.Join(bad, "; "))
}

func transform(c jetstream.StreamConfig) string {
	if c.SubjectTransform == nil {
		return "none"
	}
	return c.SubjectTransform.Source + " -> " + c.SubjectTransform.Destination
}

// insist tries again while the server says that it cannot answer yet, or says
// nothing: a cluster may forget a request while it elects a leader.
func insist(ctx context.Context, try func(context.Context) error) error {
	settled := time.Now().Add(settling)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		attempt, cancel := context.WithTimeout(ctx, 3*time.Second)
		err := try(attempt)
		cancel()
		if err == nil || !passing(err) && (!unplaced(err) || time.Now().After(settled)) {
			return err
		}
		timer.Reset(100 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: the streams of the fleet could not be made: %w", drover.CodeUnavailable, err)
		}
	}
}

// passing reports whether an error may go away by itself.
func passing(err error) bool {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return api.Code == 503 || api.ErrorCode == codeBusy
	}
	for _, e := range []error{
		nats.ErrNoResponders, nats.ErrTimeout, nats.ErrDisconnected, nats.ErrConnectionReconnecting,
		jetstream.ErrNoStreamResponse, context.DeadlineExceeded,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// settling is how long a cluster may take until all of its servers have heard
// of each other. Until then it finds no room for streams.
const settling = 30 * time.Second

// codeBusy: wrong last sequence, as another write to the same subject is on its way
// through the cluster.
const codeBusy = 10164

// codeUnplaced: no suitable peers for placement.
const codeUnplaced = 10005

func unplaced(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == codeUnplaced
}
