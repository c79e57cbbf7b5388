package topology

import (
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
)

// Storage says where streams keep their messages.
type Storage string

// The storages.
const (
	StorageFile   Storage = "file"
	StorageMemory Storage = "memory" // gone with the server; for tests and trials
)

// Settings are what a fleet is set up with. A zero field means: what is stored,
// or the default where nothing is.
type Settings struct {
	// Partitions is how many slices the runs fall into, 1 to 4096. It can never
	// change. Default 64.
	Partitions int `json:"partitions"`
	// Replicas is how many servers hold each stream, 1 or 3. Default 1.
	Replicas int `json:"replicas"`
	// Storage is file or memory. Default file.
	Storage Storage `json:"storage"`
	// Retention is how long a run can be read after it ended. Default 7 d.
	Retention drover.Duration `json:"retention"`
}

// Defaults are the settings of a fleet that was asked for none.
func Defaults() Settings {
	return Settings{
		Partitions: 64,
		Replicas:   1,
		Storage:    StorageFile,
		Retention:  drover.Duration(7 * 24 * time.Hour),
	}
}

// or gives s with its zero fields taken from other.
func (s Settings) or(other Settings) Settings {
	if s.Partitions == 0 {
		s.Partitions = other.Partitions
	}
	if s.Replicas == 0 {
		s.Replicas = other.Replicas
	}
	if s.Storage == "" {
		s.Storage = other.Storage
	}
	if s.Retention == 0 {
		s.Retention = other.Retention
	}
	return s
}

// maxPartitions bounds what a worker must watch. A partition costs an ordered
// consumer, so that more than a few hundred help nobody.
const maxPartitions = 4096

// check refuses values that no fleet may have. Zero fields are fine.
func (s Settings) check() error {
	var bad []string
	if s.Partitions < 0 || s.Partitions > maxPartitions {
		bad = append(bad, fmt.Sprintf("partitions is %d, and must be 1 to %d", s.Partitions, maxPartitions))
	}
	if s.Replicas != 0 && s.Replicas != 1 && s.Replicas != 3 {
		bad = append(bad, fmt.Sprintf("replicas is %d, and must be 1 or 3", s.Replicas))
	}
	if s.Storage != "" && s.Storage != StorageFile && s.Storage != StorageMemory {
		bad = append(bad, fmt.Sprintf("storage is %q, and must be file or memory", s.Storage))
	}
	if s.Retention != 0 && time.Duration(s.Retention) < time.Second {
		bad = append(bad, fmt.Sprintf("retention is %v, and must be at least 1s", s.Retention))
	}
	if len(bad) > 0 {
		return drover.Errorf(drover.CodeInvalidRequest, "the settings of the fleet cannot be used: %s", strings.Join(bad, "; "))
	}
	return nil
}

// disagree says where asked is set and differs from what the fleet has.
func (s Settings) disagree(asked Settings) error {
	var bad []string
	differs := func(name string, asked, has any) {
		bad = append(bad, fmt.Sprintf("%s is %v there, and this worker asks for %v", name, has, asked))
	}
	if asked.Partitions != 0 && asked.Partitions != s.Partitions {
		differs("partitions", asked.Partitions, s.Partitions)
	}
	if asked.Replicas != 0 && asked.Replicas != s.Replicas {
		differs("replicas", asked.Replicas, s.Replicas)
	}
	if asked.Storage != "" && asked.Storage != s.Storage {
		differs("storage", asked.Storage, s.Storage)
	}
	if asked.Retention != 0 && asked.Retention != s.Retention {
		differs("retention", asked.Retention, s.Retention)
	}
	if len(bad) == 0 {
		return nil
	}
	return drover.Errorf(drover.CodeConflict,
		"the fleet was set up with other settings: %s; start the worker with the settings of the fleet, or with none",
		strings.Join(bad, "; "))
}

func (s Storage) nats() jetstream.StorageType {
	if s == StorageMemory {
		return jetstream.MemoryStorage
	}
	return jetstream.FileStorage
}

// payloadRoom is what a message may carry besides the value in it: headers and
// the JSON around it.
const payloadRoom = 64 << 10

// CheckPayload gives how many bytes a single value may have with the server of
// a connection: drover.MaxValue, or less where the server takes only smaller
// messages, which is what the error then says. With that error the fleet works,
// with a lower limit; when limit is 0 it does not.
func CheckPayload(nc *nats.Conn) (limit int64, err error) {
	payload := nc.MaxPayload()
	limit = min(payload-payloadRoom, drover.MaxValue)
	if limit == drover.MaxValue {
		return limit, nil
	}
	limit = max(limit, 0)
	return limit, drover.Errorf(drover.CodeTooLarge,
		"the server takes messages of %d bytes, so that a value may have only %d bytes in place of %d; set max_payload of the server to %d or more",
		payload, limit, drover.MaxValue, drover.MaxValue+payloadRoom)
}
