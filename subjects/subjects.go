// Package subjects spells every subject, stream, bucket, key and header of
// Drover, and nothing else does. It performs no I/O.
//
// All names begin with a prefix, so that several fleets share a server: the
// prefix drover makes the subjects drover.> and the streams DROVER*. No name
// that a user sees holds a partition; only the command subjects, which the
// server makes from drover.in.<run>.<verb> by a subject transform, do.
package subjects

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/droverhq/drover"
)

// DefaultPrefix is the prefix of a fleet that was given none.
const DefaultPrefix = "drover"

// Names spells the names of one fleet. The zero value is not usable.
type Names struct {
	prefix string // lower case, one token
	upper  string
}

// New gives the names with a prefix: 1 to 32 lower-case letters, digits or
// "_", the first a letter. Empty means DefaultPrefix.
func New(prefix string) (Names, error) {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	ok := len(prefix) <= 32 && prefix[0] >= 'a' && prefix[0] <= 'z'
	for i := range len(prefix) {
		c := prefix[i]
		ok = ok && ('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_')
	}
	if !ok {
		return Names{}, drover.Errorf(drover.CodeInvalidID,
			"prefix %q must be 1 to 32 lower-case letters, digits or _, the first a letter", prefix)
	}
	return Names{prefix: prefix, upper: strings.ToUpper(prefix)}, nil
}

// Default gives the names with DefaultPrefix.
func Default() Names {
	n, _ := New(DefaultPrefix)
	return n
}

// Prefix is the prefix of all subjects.
func (n Names) Prefix() string { return n.prefix }

// In is where anyone publishes a command.
func (n Names) In(run drover.RunID, verb drover.Verb) string {
	return n.prefix + ".in." + string(run) + "." + string(verb)
}

// InAll matches every In.
func (n Names) InAll() string { return n.prefix + ".in.*.*" }

// CommandTransform is the destination of the server's subject transform of
// InAll over so many partitions. The server hashes the run id with FNV-1a 32,
// as Partition does.
func (n Names) CommandTransform(partitions int) string {
	return fmt.Sprintf("%s.cmd.{{partition(%d,1)}}.{{wildcard(1)}}.{{wildcard(2)}}", n.prefix, partitions)
}

// CommandAll matches every stored command.
func (n Names) CommandAll() string { return n.prefix + ".cmd.>" }

// CommandsOf matches every stored command of one partition.
func (n Names) CommandsOf(partition int) string {
	return n.prefix + ".cmd." + strconv.Itoa(partition) + ".>"
}

// CommandsTo matches every stored command for a run of a partition.
func (n Names) CommandsTo(partition int, run drover.RunID) string {
	return n.prefix + ".cmd." + strconv.Itoa(partition) + "." + string(run) + ".*"
}

// ParseCommand takes the subject of a stored command apart. The run and the
// verb are what a publisher wrote, and may be anything that fits in a token.
func (n Names) ParseCommand(subject string) (partition int, run, verb string, ok bool) {
	rest, ok := strings.CutPrefix(subject, n.prefix+".cmd.")
	if !ok {
		return 0, "", "", false
	}
	parts := strings.Split(rest, ".")
	if len(parts) != 3 {
		return 0, "", "", false
	}
	partition, err := strconv.Atoi(parts[0])
	return partition, parts[1], parts[2], err == nil
}

// Timer is the subject of a scheduled wake-up of a run: a new one for each
// sequence at which it is set.
func (n Names) Timer(run drover.RunID, applied uint64) string {
	return n.prefix + ".timer." + string(run) + "." + strconv.FormatUint(applied, 10)
}

// TimersOf matches every Timer of a run.
func (n Names) TimersOf(run drover.RunID) string { return n.prefix + ".timer." + string(run) + ".*" }

// TimerAll matches every Timer.
func (n Names) TimerAll() string { return n.prefix + ".timer.*.*" }

// Call is where a call of a function is queued. The run comes first, so that
// all that is queued for a run can be withdrawn at once.
func (n Names) Call(run drover.RunID, function drover.FunctionName) string {
	return n.prefix + ".call." + string(run) + "." + string(function)
}

// CallsOf matches every Call of a run.
func (n Names) CallsOf(run drover.RunID) string { return n.prefix + ".call." + string(run) + ".>" }

// CallAll matches every Call.
func (n Names) CallAll() string { return n.prefix + ".call.>" }

// CallsTo matches every Call of one function.
func (n Names) CallsTo(function drover.FunctionName) string {
	return n.prefix + ".call.*." + string(function)
}

// Cancel is where the instances of a function are told that a call is not
// wanted any more.
func (n Names) Cancel(run drover.RunID, function drover.FunctionName) string {
	return n.prefix + ".cancel." + string(run) + "." + string(function)
}

// CancelsTo matches every Cancel of one function.
func (n Names) CancelsTo(function drover.FunctionName) string {
	return n.prefix + ".cancel.*." + string(function)
}

// RunOfCancel gives the run of a Cancel, as it was spelled.
func (n Names) RunOfCancel(subject string) (drover.RunID, bool) {
	rest, ok := strings.CutPrefix(subject, n.prefix+".cancel.")
	if !ok {
		return "", false
	}
	run, _, ok := strings.Cut(rest, ".")
	return drover.RunID(run), ok
}

// Done is where the outcome of a run is published.
func (n Names) Done(workflow drover.WorkflowName, run drover.RunID) string {
	if workflow == "" {
		workflow = "_"
	}
	return n.prefix + ".done." + string(workflow) + "." + string(run)
}

// DoneAll matches every Done.
func (n Names) DoneAll() string { return n.prefix + ".done.>" }

// DoneOf matches the Done of one run.
func (n Names) DoneOf(run drover.RunID) string { return n.prefix + ".done.*." + string(run) }

// Nudge is where a process that drives programs is told that a journal has grown.
func (n Names) Nudge(instance string) string { return n.prefix + ".drive." + Encode(instance) }

// Stream is where the chunks of one stream of a program are.
func (n Names) Stream(run drover.RunID, id string) string {
	return n.prefix + ".stream." + string(run) + "." + Encode(id)
}

// StreamsOf matches every Stream of a run.
func (n Names) StreamsOf(run drover.RunID) string { return n.prefix + ".stream." + string(run) + ".*" }

// StreamAll matches every Stream.
func (n Names) StreamAll() string { return n.prefix + ".stream.*.*" }

// Session is where a session gets the outcomes of runs that it started with
// reply_to: one of SessionOfUser and SessionOfCall.
func (n Names) Session(session string) string { return n.prefix + ".session." + session }

// SessionOfUser is the session of a user of an account.
func SessionOfUser(account, user string) string {
	return "user." + Encode(account) + "." + Encode(user)
}

// SessionOfCall is the session of a call, by the id that an agent node gives it.
func SessionOfCall(id string) string { return "call." + Encode(id) }

// Event is where it is hinted that a run changed: no stream keeps it, and it
// may get lost.
func (n Names) Event(run drover.RunID) string { return n.prefix + ".event." + string(run) }

// EventAll matches every Event.
func (n Names) EventAll() string { return n.prefix + ".event.*" }

// Dead is where a command that could not be folded is kept, by its sequence.
func (n Names) Dead(partition int, sequence uint64) string {
	return n.prefix + ".dead." + strconv.Itoa(partition) + "." + strconv.FormatUint(sequence, 10)
}

// DeadOf matches the Dead of one sequence, whatever its partition is.
func (n Names) DeadOf(sequence uint64) string {
	return n.prefix + ".dead.*." + strconv.FormatUint(sequence, 10)
}

// DeadAll matches every Dead.
func (n Names) DeadAll() string { return n.prefix + ".dead.>" }

// API is where a request is answered by any worker.
func (n Names) API(verb string) string { return n.prefix + ".api." + verb }

// APIRoot is the subject that all API requests begin with.
func (n Names) APIRoot() string { return n.prefix + ".api" }

// Service is the name under which the workers announce the API.
func (n Names) Service() string { return n.prefix }

// Pull is where the next messages of a durable consumer are asked for.
func Pull(stream, consumer string) string {
	return "$JS.API.CONSUMER.MSG.NEXT." + stream + "." + consumer
}
