package sim

import (
	"bytes"
	"container/heap"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/internal/partition"
	"github.com/droverhq/drover/kv"
)

// Faults says how often things go wrong, as chances from 0 to 1.
type Faults struct {
	Fail     float64       // an operation does not happen, and its owner is told
	Unknown  float64       // an operation happens, and its owner is told that it may not have
	Slow     float64       // something takes up to seconds instead of milliseconds
	Repeat   float64       // a queued call or a client's command comes twice
	Crash    float64       // an owner dies, at each of its steps
	Zombie   float64       // another owner takes over while the old one goes on, at each step
	Handover float64       // an owner gives the partition back in good order, at each of its steps
	Lose     float64       // a function instance dies in the middle of a call
	Skew     time.Duration // how far the clocks of owners are off: of one ahead, of the next behind
}

// World is everything outside of an owner.
type World struct {
	Seed   uint64
	rng    *rand.Rand
	now    time.Time
	faults Faults
	events events
	ticket int

	log      []partition.Message
	records  map[drover.RunID]record
	revision uint64
	values   map[string]json.RawMessage
	written  map[string]uint64 // when values and keys of the list were written: as many writes were before
	writes   uint64
	lives    map[drover.RunID][]life
	plans    map[drover.Hash]*machine.Plan
	lease    lease
	unsaved  time.Time // until then no cursor can be saved
	owners   []*owner
	queue    map[string]*queued
	refused  map[uint64]drover.Code // commands whose senders were told so
	accepted int                    // answers that said yes
	dead     map[uint64]*drover.Error
	outcomes map[drover.RunID][]byte
	finals   map[drover.RunID]final
	starts   map[drover.RunID]*drover.StartRequest // runs that a client or a parent asked for

	tokens    *bucket
	processes []*process
	asked     map[uint64]func(any, *drover.Error) // those who wait for the answer to a command
	told      *told                               // about outcomes, and those who are told
	done      stream                              // of all outcomes
	kept      stream                              // that subscribers have
	seen      Seen
	hooked    *hooked                          // nil: a world without hooks
	programs  *programs                        // nil: a world without programs
	skewed    bool                             // clocks are off
	tell      func(format string, args ...any) // nil: nobody follows

	repeats    int // calls that were queued more than once
	queuedOnce map[string]bool
	steps      int
	commits    int
	crashes    int
	handovers  int
	failure    error // the first violation
}

type record struct {
	data    []byte
	rev     uint64
	seq     uint64
	retired *remains // its run is being removed, and is none any more
}

// lease is what the fleet's bucket says of the partition.
type lease struct {
	epoch  int
	cursor uint64
}

// final is how a run ended, as the first terminal record said.
type final struct {
	status drover.Status
	result string
	err    string
}

func newWorld(seed uint64, faults Faults) *World {
	w := &World{
		Seed:       seed,
		rng:        rand.New(rand.NewPCG(seed, 0x5eed)),
		now:        time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC),
		faults:     faults,
		records:    map[drover.RunID]record{},
		values:     map[string]json.RawMessage{},
		written:    map[string]uint64{},
		lives:      map[drover.RunID][]life{},
		plans:      map[drover.Hash]*machine.Plan{},
		lease:      lease{cursor: 1},
		queue:      map[string]*queued{},
		refused:    map[uint64]drover.Code{},
		dead:       map[uint64]*drover.Error{},
		outcomes:   map[drover.RunID][]byte{},
		finals:     map[drover.RunID]final{},
		starts:     map[drover.RunID]*drover.StartRequest{},
		queuedOnce: map[string]bool{},
		tokens:     &bucket{claims: map[string]kv.Record{}, ids: map[string]reservation{}},
		asked:      map[uint64]func(any, *drover.Error){},
		skewed:     faults.Skew != 0,
		told:       newTold(),
		seen:       Seen{},
	}
	w.told.calmAt = w.now
	if faults != (Faults{}) {
		w.told.calmAt = w.now.Add(trouble)
	}
	return w
}

// event is something that happens at a time.
type event struct {
	at     time.Time
	ticket int // orders events of one time
	do     func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	if !e[i].at.Equal(e[j].at) {
		return e[i].at.Before(e[j].at)
	}
	return e[i].ticket < e[j].ticket
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

// at has something happen at a time, or now where that is past.
func (w *World) at(t time.Time, do func()) {
	if t.Before(w.now) {
		t = w.now
	}
	w.ticket++
	heap.Push(&w.events, event{t, w.ticket, do})
}

// soon has something happen after a time as it passes between machines.
func (w *World) soon(do func()) { w.at(w.now.Add(w.latency()), do) }

func (w *World) latency() time.Duration {
	if w.chance(w.faults.Slow) {
		return time.Duration(w.rng.Int64N(int64(3 * time.Second)))
	}
	return time.Duration(w.rng.Int64N(int64(2 * time.Millisecond)))
}

func (w *World) chance(p float64) bool { return p > 0 && w.rng.Float64() < p }

// next lets the next event happen. It is false where there is none.
func (w *World) next() bool {
	if len(w.events) == 0 || w.failure != nil {
		return false
	}
	e := heap.Pop(&w.events).(event)
	w.now = e.at
	w.steps++
	e.do()
	return true
}

// follow tells what happens to whoever follows.
func (w *World) follow(format string, args ...any) {
	if w.tell != nil {
		w.tell("%s "+format, append([]any{w.now.Format("04:05.000")}, args...)...)
	}
}

// violated records that a promise was broken.
func (w *World) violated(format string, args ...any) {
	if w.failure == nil {
		w.failure = fmt.Errorf("at %s: "+format, append([]any{w.now.Format("15:04:05.000")}, args...)...)
	}
}

// append puts a command into the log. Now and then its sender wants the answer.
func (w *World) append(run drover.RunID, verb drover.Verb, payload any) uint64 {
	asks := verb == drover.VerbStart || verb == drover.VerbStop || verb == drover.VerbDeliver || verb == drover.VerbReplay
	return w.store(run, verb, payload, asks && w.chance(0.3))
}

// store puts a command into the log.
func (w *World) store(run drover.RunID, verb drover.Verb, payload any, asks bool) uint64 {
	data, ok := payload.([]byte)
	if !ok && payload != nil {
		var err error
		if data, err = json.Marshal(payload); err != nil {
			w.violated("a payload of %s cannot be encoded: %v", verb, err)
		}
	}
	m := partition.Message{Seq: uint64(len(w.log)) + 1, At: w.now, Run: string(run), Verb: string(verb), Data: data}
	if asks {
		m.Reply = strconv.FormatUint(m.Seq, 10)
	}
	w.log = append(w.log, m)
	w.follow("command %d: %s %s %.300s", m.Seq, m.Run, m.Verb, m.Data)
	for _, o := range w.owners {
		w.soon(o.read)
	}
	return m.Seq
}

// value gives a value in full.
func (w *World) value(v machine.Value) json.RawMessage {
	if v.Key == "" {
		return v.JSON
	}
	data, ok := w.values[v.Key]
	if !ok && (!w.gone(runOf(v.Key)) && !w.forgotten(v.Key) || w.refers(v.Key)) {
		w.violated("the value %s is referred to, but was never stored", v.Key)
	}
	return data
}

// wrote notes when something was written that is not a record.
func (w *World) wrote(key string) {
	w.writes++
	w.written[key] = w.writes
}

// write is a revision-checked write of a record.
func (w *World) write(op *partition.Op) (uint64, error) {
	for _, put := range op.Puts {
		was, ok := w.values[put.Key]
		if !ok {
			w.values[put.Key] = put.JSON
			w.wrote(put.Key)
		} else if !bytes.Equal(was, put.JSON) {
			w.violated("run %s has two values under %s:\n%.200s\n%.200s", op.Run, put.Key, was, put.JSON)
		}
	}
	old := w.records[op.Run]
	if old.rev != op.Revision {
		return 0, partition.ErrConflict
	}
	w.revision++
	w.commits++
	rec := record{data: op.Data, rev: w.revision}
	w.inspect(op.Run, old, &rec)
	w.records[op.Run] = rec
	return rec.rev, nil
}
