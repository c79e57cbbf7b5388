package topology

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

const (
	// maxMessage is the size of a message with a definition and an input, each
	// as big as it may be, and what is around them.
	maxMessage = 2*(drover.MaxDefinition+drover.MaxValue) + payloadRoom
	// maxDead is how much of what could not be folded is kept.
	maxDead = 64 << 20
	// duplicates is how long the server knows a message id.
	duplicates = 2 * time.Minute
	// markerTTL is how long the mark of an expired lease is kept, for watchers
	// that were away meanwhile. One that was away for longer must start from
	// the keys that are there.
	markerTTL = time.Minute
)

// streams are all streams of a fleet but that of the FLEET bucket.
func streams(n subjects.Names, s Settings) []jetstream.StreamConfig {
	return []jetstream.StreamConfig{
		commands(n, s),
		calls(n, s),
		outcomes(n, s),
		deadLetters(n, s),
		chunks(n, s),
		bucket(n.Runs(), "records of runs", s, leaderOnly),
		bucket(n.Values(), "values that are too big for their records", s, anyReplica),
		bucket(n.Definitions(), "definitions and registered names", s, anyReplica),
		bucket(n.Hooks(), "claims of hooks", s, leaderOnly),
		bucket(n.Deliveries(), "deliveries of outcomes that did not succeed at once", s, anyReplica),
	}
}

// fleet is the stream of the FLEET bucket.
func fleet(n subjects.Names, s Settings) jetstream.StreamConfig {
	c := bucket(n.Fleet(), "settings, members and partitions", s, leaderOnly)
	c.SubjectDeleteMarkerTTL = markerTTL // the end of a lease is a message, which watchers see
	return c
}

// base has no limit at all.
func base(name, description string, s Settings) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              name,
		Description:       "Drover: " + description,
		MaxMsgs:           -1,
		MaxBytes:          -1,
		MaxMsgsPerSubject: -1,
		MaxMsgSize:        -1,
		MaxConsumers:      -1,
		Storage:           s.Storage.nats(),
		Replicas:          s.Replicas,
		Discard:           jetstream.DiscardNew,
		Duplicates:        duplicates,
	}
}

func commands(n subjects.Names, s Settings) jetstream.StreamConfig {
	c := base(n.Commands(), "commands and timers", s)
	c.Subjects = []string{n.InAll(), n.TimerAll()}
	c.SubjectTransform = &jetstream.SubjectTransformConfig{
		Source:      n.InAll(),
		Destination: n.CommandTransform(s.Partitions),
	}
	c.MaxMsgSize = maxMessage
	c.Discard = jetstream.DiscardOld // without a limit there is nothing to discard
	c.AllowMsgSchedules = true
	c.AllowMsgTTL = true
	c.AllowRollup = true // a stream with schedules has it anyway
	c.AllowAtomicPublish = true
	return c
}

func calls(n subjects.Names, s Settings) jetstream.StreamConfig {
	c := base(n.Calls(), "queued calls", s)
	c.Subjects = []string{n.CallAll()}
	c.Retention = jetstream.WorkQueuePolicy
	c.MaxMsgSize = maxMessage
	c.AllowAtomicPublish = true
	return c
}

func outcomes(n subjects.Names, s Settings) jetstream.StreamConfig {
	c := base(n.Outcomes(), "outcomes of runs", s)
	c.Subjects = []string{n.DoneAll()}
	c.AllowDirect = true
	c.AllowAtomicPublish = true
	c.MaxAge = time.Duration(s.Retention)
	c.Duplicates = min(c.Duplicates, c.MaxAge) // or the server refuses it
	return c
}

func deadLetters(n subjects.Names, s Settings) jetstream.StreamConfig {
	c := base(n.DeadLetters(), "commands that could not be folded", s)
	c.Subjects = []string{n.DeadAll()}
	c.MaxMsgsPerSubject = 1
	c.MaxBytes = maxDead
	c.Discard = jetstream.DiscardOld
	c.AllowDirect = true
	return c
}

// chunks is the stream of the streams of programs. They go with their run.
func chunks(n subjects.Names, s Settings) jetstream.StreamConfig {
	c := base(n.Streams(), "what programs write for their readers", s)
	c.Subjects = []string{n.StreamAll()}
	c.AllowDirect = true
	c.AllowAtomicPublish = true
	return c
}

// reads says who may answer a read of a bucket.
type reads bool

const (
	leaderOnly reads = false
	anyReplica reads = true
)

// bucket is a stream that KV clients understand. Its messages may be deleted one
// by one, which those of a bucket made by such a client may not: with a history
// of 1, to delete the message of a revision is to delete the key if it still has
// that revision, and leaves no mark in the way of whoever creates the key anew.
func bucket(name, description string, s Settings, direct reads) jetstream.StreamConfig {
	c := base(subjects.BucketStream(name), description, s)
	c.Subjects = []string{subjects.BucketKey(name, ">")}
	c.MaxMsgsPerSubject = 1
	c.AllowDirect = bool(direct)
	c.AllowRollup = true
	c.AllowMsgTTL = true
	c.AllowAtomicPublish = true
	return c
}
