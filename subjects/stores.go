package subjects

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/droverhq/drover"
)

// Partition is the partition of a run, out of so many. It equals what the
// server's {{partition(n,1)}} makes of the run id.
func Partition(run string, partitions int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(run))
	return int(h.Sum32() % uint32(partitions))
}

// The streams.

// Commands is the stream of commands and timers.
func (n Names) Commands() string { return n.upper }

// Calls is the stream of queued calls.
func (n Names) Calls() string { return n.upper + "_CALLS" }

// Outcomes is the stream of outcomes.
func (n Names) Outcomes() string { return n.upper + "_DONE" }

// DeadLetters is the stream of commands that could not be folded.
func (n Names) DeadLetters() string { return n.upper + "_DEAD" }

// Streams is the stream of what programs write for their readers.
func (n Names) Streams() string { return n.upper + "_STREAMS" }

// Consumer is the durable consumer of the queued calls of one function.
func (n Names) Consumer(function drover.FunctionName) string {
	return "fn_" + strings.ReplaceAll(string(function), ".", "=")
}

// The buckets.

// Runs is the bucket of records.
func (n Names) Runs() string { return n.upper + "_RUNS" }

// Values is the bucket of values that are too big for their record.
func (n Names) Values() string { return n.upper + "_VALUES" }

// Definitions is the bucket of definitions and of registered names.
func (n Names) Definitions() string { return n.upper + "_DEFINITIONS" }

// Hooks is the bucket of claims.
func (n Names) Hooks() string { return n.upper + "_HOOKS" }

// Deliveries lists deliveries that did not succeed at once.
func (n Names) Deliveries() string { return n.upper + "_DELIVERIES" }

// Fleet is the bucket of settings, members, partitions and the secret.
func (n Names) Fleet() string { return n.upper + "_FLEET" }

// BucketStream is the stream behind a bucket.
func BucketStream(bucket string) string { return "KV_" + bucket }

// StreamOf names the stream that keeps what is published on a subject, for those
// that a fleet writes to at every step: commands, calls, outcomes, records and
// values. It is "" for all else.
func (n Names) StreamOf(subject string) string {
	if key, ok := strings.CutPrefix(subject, "$KV."+n.upper); ok {
		switch {
		case strings.HasPrefix(key, "_RUNS."):
			return BucketStream(n.Runs())
		case strings.HasPrefix(key, "_VALUES."):
			return BucketStream(n.Values())
		}
		return ""
	}
	rest, ok := strings.CutPrefix(subject, n.prefix+".")
	kind, _, _ := strings.Cut(rest, ".")
	switch {
	case !ok:
		return ""
	case kind == "in":
		return n.Commands()
	case kind == "call":
		return n.Calls()
	case kind == "done":
		return n.Outcomes()
	}
	return ""
}

// BucketKey is the subject behind a key of a bucket.
func BucketKey(bucket, key string) string { return "$KV." + bucket + "." + key }

// ReadLatest is where the leader of a stream is asked for a message; the payload
// says which.
func ReadLatest(stream string) string { return "$JS.API.STREAM.MSG.GET." + stream }

// ReadInfo is where the leader of a stream is asked what it has; the payload may ask
// for subjects.
func ReadInfo(stream string) string { return "$JS.API.STREAM.INFO." + stream }

// ReadDirect is where any replica of a stream answers with the latest message on
// a subject, if the stream allows direct reads.
func ReadDirect(stream, subject string) string { return "$JS.API.DIRECT.GET." + stream + "." + subject }

// ReadDirectMany is where any replica of a stream answers with messages; the
// payload says which.
func ReadDirectMany(stream string) string { return "$JS.API.DIRECT.GET." + stream }

// The keys.

// RunKey is the key of a record.
func RunKey(partition int, run drover.RunID) string {
	return strconv.Itoa(partition) + "." + string(run)
}

// RunOfKey gives the run of a RunKey.
func RunOfKey(key string) (drover.RunID, bool) {
	_, run, ok := strings.Cut(key, ".")
	return drover.RunID(run), ok
}

// InputKey is the key of a run's input.
func InputKey(run drover.RunID) string { return string(run) + ".input" }

// ResultKey is the key of a run's result.
func ResultKey(run drover.RunID) string { return string(run) + ".result" }

// OutputKey is the key of what a call gave.
func OutputKey(c drover.CallID) string {
	key := string(c.Run) + ".node." + Encode(string(c.Node))
	if c.Item != drover.NoItem {
		key += "." + strconv.Itoa(c.Item)
	}
	if c.Undo {
		key += ".undo"
	}
	return key + "." + strconv.Itoa(c.Attempt)
}

// ItemsKey is the key of the array that a fan-out goes over, where an
// expression made it.
func ItemsKey(run drover.RunID, node drover.NodeID) string {
	return string(run) + ".items." + Encode(string(node))
}

// DeliveredKey is the key of a delivery's payload, by the sequence of its command.
func DeliveredKey(run drover.RunID, sequence uint64) string {
	return string(run) + ".delivered." + strconv.FormatUint(sequence, 10)
}

// JournalKey is where a part of the journal of a program is kept.
func JournalKey(run drover.RunID, generation int, part string, number int) string {
	return string(run) + ".journal." + strconv.Itoa(generation) + "." + part + "." + strconv.Itoa(number)
}

// GenerationOfKey gives the generation of a JournalKey of a run.
func GenerationOfKey(run drover.RunID, key string) (int, bool) {
	rest, ok := strings.CutPrefix(key, string(run)+".journal.")
	digits, _, more := strings.Cut(rest, ".")
	n, err := strconv.Atoi(digits)
	return n, ok && more && err == nil && n >= 0
}

// NodeOfKey gives the node of an OutputKey of a run.
func NodeOfKey(run drover.RunID, key string) (drover.NodeID, bool) {
	rest, ok := strings.CutPrefix(key, string(run)+".node.")
	token, _, more := strings.Cut(rest, ".")
	node, decoded := Decode(token)
	return drover.NodeID(node), ok && more && decoded
}

// DeliveredOfKey gives the sequence of a DeliveredKey of a run.
func DeliveredOfKey(run drover.RunID, key string) (uint64, bool) {
	digits, ok := strings.CutPrefix(key, string(run)+".delivered.")
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, ok && err == nil
}

// ValuesOf matches the keys of every value of a run.
func ValuesOf(run drover.RunID) string { return string(run) + ".>" }

// DefinitionKey is the key of a definition.
func DefinitionKey(hash drover.Hash) string { return "hash." + string(hash) }

// NameKey is the key of a registered name, whose value is a hash.
func NameKey(name drover.WorkflowName) string { return "name." + string(name) }

// NameOfKey gives the registered name of a NameKey.
func NameOfKey(key string) (drover.WorkflowName, bool) {
	name, ok := strings.CutPrefix(key, "name.")
	return drover.WorkflowName(name), ok
}

// NameKeys matches every NameKey.
func NameKeys() string { return "name.*" }

// HookKey is the key of the claim of a hook's token, which may be any text.
func HookKey(token string) string { return Encode(token) }

// HookKeys matches every HookKey, and no HookIDKey.
func HookKeys() string { return "*" }

// TokenOfKey gives the token of a HookKey.
func TokenOfKey(key string) (string, bool) { return Decode(key) }

// HookIDKey is the key of an id that was sent to a token; both may be any text.
func HookIDKey(token, id string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s%s", len(token), token, id))
	return "id." + hex.EncodeToString(sum[:16])
}

// DeliveryKey lists one delivery under whom it is for. A target is any text that
// tells subscribers apart.
func DeliveryKey(target string, partition int, run drover.RunID, subscriber int) string {
	return targetKey(target) + "." + strconv.Itoa(partition) + "." + string(run) + "." + strconv.Itoa(subscriber)
}

// DeliveryOfKey reads such a key; the target is known by its hash only.
func DeliveryOfKey(key string) (partition int, run drover.RunID, subscriber int, ok bool) {
	parts := strings.Split(key, ".")
	if len(parts) != 4 {
		return 0, "", 0, false
	}
	partition, err := strconv.Atoi(parts[1])
	subscriber, err2 := strconv.Atoi(parts[3])
	return partition, drover.RunID(parts[2]), subscriber, err == nil && err2 == nil
}

// DeliveriesTo are the keys of all deliveries to a target.
func DeliveriesTo(target string) string { return targetKey(target) + ".*.*.*" }

// DeliveriesIn are the keys of all deliveries of runs of a partition.
func DeliveriesIn(partition int) string { return "*." + strconv.Itoa(partition) + ".*.*" }

// DeliveriesOf are the keys of all deliveries of one run.
func DeliveriesOf(run drover.RunID) string { return "*.*." + string(run) + ".*" }

func targetKey(target string) string {
	sum := sha256.Sum256([]byte(target))
	return hex.EncodeToString(sum[:8])
}

// SettingsKey is the key of the settings that a fleet was set up with.
func SettingsKey() string { return "settings" }

// SecretKey is the key of the secret that the workers of a fleet share.
func SecretKey() string { return "secret" }

// MemberKey is the key of a worker that lives.
func MemberKey(worker string) string { return "worker." + worker }

// MemberOfKey gives the worker of a MemberKey.
func MemberOfKey(key string) (string, bool) { return strings.CutPrefix(key, "worker.") }

// MemberKeys matches every MemberKey.
func MemberKeys() string { return "worker.*" }

// PartitionKey is the key of a partition's owner, epoch and cursor.
func PartitionKey(partition int) string { return "partition." + strconv.Itoa(partition) }

// PartitionOfKey gives the partition of a PartitionKey.
func PartitionOfKey(key string) (int, bool) {
	digits, ok := strings.CutPrefix(key, "partition.")
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n >= 0
}

// PartitionKeys matches every PartitionKey.
func PartitionKeys() string { return "partition.*" }

// Encode makes any text a token of a key or a subject: text of letters,
// digits, "-" and "_" that does not begin with "_" stays as it is, all else
// becomes "_" and URL base64 without padding. Decode reads it back.
func Encode(s string) string {
	plain := s != "" && s[0] != '_'
	for i := range len(s) {
		c := s[i]
		plain = plain && ('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_')
	}
	if plain {
		return s
	}
	return "_" + base64.RawURLEncoding.EncodeToString([]byte(s))
}

// Decode reads what Encode wrote.
func Decode(token string) (string, bool) {
	coded, ok := strings.CutPrefix(token, "_")
	if !ok {
		return token, Encode(token) == token
	}
	s, err := base64.RawURLEncoding.DecodeString(coded)
	return string(s), err == nil && Encode(string(s)) == token
}
