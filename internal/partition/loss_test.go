package partition

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

// losing is a world whose log loses its end now and then, while the records stay.
type losing struct {
	*driver
	rng  *rand.Rand
	read int // messages of the log that the owner has got
	sent int
}

const losingRuns = 4

// unread is a definition whose second wait never begins: what is for it is kept.
const unread = `{"nodes":{"a":{"wait":{"name":"never"}},"b":{"wait":{"name":"kept"},"depends_on":["a"]}},"output":{"from":"node:b"}}`

// publish stores a delivery that nothing reads, so that the record keeps it.
func (l *losing) publish() {
	run := fmt.Sprint("r", l.rng.IntN(losingRuns))
	l.sent++
	l.append(run, drover.VerbDeliver, drover.DeliverRequest{Name: "kept", Payload: json.RawMessage(fmt.Sprint(l.sent))})
}

func (l *losing) append(run string, verb drover.Verb, payload any) {
	data, err := json.Marshal(payload)
	if err != nil {
		l.t.Fatal(err)
	}
	l.now = l.now.Add(time.Millisecond)
	l.log = append(l.log, Message{Seq: uint64(len(l.log)) + 1, At: l.now, Run: run, Verb: string(verb), Data: data})
}

// receive gives the owner some of what it has not got.
func (l *losing) receive() {
	for n := l.rng.IntN(5); n > 0 && l.read < len(l.log); n-- {
		l.p.Advance(l.now)
		l.p.Receive(l.log[l.read])
		l.read++
	}
}

// work ends some of what is under way.
func (l *losing) work() {
	for range l.rng.IntN(8) {
		if l.take(); len(l.open) == 0 {
			return
		}
		l.end(l.open[l.rng.IntN(len(l.open))].Kind)
	}
}

// takeOver has another owner begin where the last one saved that it was, or earlier.
func (l *losing) takeOver(cursor uint64) {
	l.own(Options{Cursor: cursor})
	l.read = int(max(cursor, 1)) - 1
}

// lose cuts the log, but leaves the first commands.
func (l *losing) lose() {
	end := max(losingRuns, len(l.log)-l.rng.IntN(40))
	l.log = l.log[:end]
	l.now = l.now.Add(time.Second)
	for range l.rng.IntN(60) { // what is published before there is an owner
		l.publish()
	}
	l.takeOver(min(l.p.Cursor(), uint64(end)+1))
}

// Whatever the log loses, and whenever: each command that it has in the end was
// folded, and each that was ever in it was folded once at most.
func TestALogThatLosesItsEndIsFoldedOnce(t *testing.T) {
	for seed := range uint64(150) {
		l := &losing{driver: newDriver(t, Options{}), rng: rand.New(rand.NewPCG(seed, 1))}
		for i := range losingRuns {
			l.append(fmt.Sprint("r", i), drover.VerbStart, drover.StartRequest{Definition: json.RawMessage(unread)})
		}
		for range 300 {
			switch n := l.rng.IntN(100); {
			case n < 40 && l.sent < 800:
				l.publish()
			case n < 65:
				l.receive()
			case n < 96:
				l.work()
			case n < 98:
				l.takeOver(l.p.Cursor())
			default:
				l.lose()
			}
		}
		for l.read < len(l.log) {
			l.receive()
		}
		for range 20 {
			l.pass(10 * time.Second)
			l.settle()
		}
		l.judge(seed)
	}
}

func (l *losing) judge(seed uint64) {
	l.t.Helper()
	kept := map[string]int{}
	for i := range losingRuns {
		s := l.state(l.records[drover.RunID(fmt.Sprint("r", i))].Data)
		for j := range s.Unread {
			kept[fmt.Sprintf("%s %s", s.Run, s.Unread[j].Payload.JSON)]++
		}
	}
	for _, m := range l.log[losingRuns:] {
		var d drover.DeliverRequest
		if err := json.Unmarshal(m.Data, &d); err != nil {
			l.t.Fatal(err)
		}
		if key := fmt.Sprintf("%s %s", m.Run, d.Payload); kept[key] == 0 {
			l.t.Errorf("seed %d: command %d (%s) was not folded", seed, m.Seq, key)
		}
	}
	for key, n := range kept {
		if n > 1 {
			l.t.Errorf("seed %d: delivery %s was folded %d times", seed, key, n)
		}
	}
}
