package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/hook"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/kv"
)

// hooked is what a world with hooks has beside the others.
type hooked struct {
	tokens   []string
	takers   bool        // some runs take tokens over
	moments  []time.Time // when things happen at the same time
	parcels  []*parcel
	stopped  map[drover.RunID]bool
	made     int // ids of runs and deliveries
	sweeping bool
	swept    bool // a sweeper has freed a token
	settled  bool // all tokens were seen in one pair of hands after the faults

	handovers int
	kept      map[drover.RunID]int // deliveries that a run could not hand over
	ledger    ledger
}

// parcel is one delivery, whose payload has its number.
type parcel struct {
	n      int
	req    drover.HookRequest
	reply  *drover.HookReply // it was accepted, its sender knows
	err    error             // it was refused, its sender knows
	over   bool              // its sender does not ask again
	tries  int
	repeat int // how often it will be sent again, once it was accepted
}

// definitions are what the runs of a world are made of: $T is the token, $W a
// timeout that is long, and $S one that may be short. The last node is the output.
var definitions = [...]string{
	`nodes:
  inbox: {wait: {hook: $T, timeout: $W}}`,
	`nodes:
  inbox: {wait: {hook: $T, timeout: $W, count: 3}}`,
	`nodes:
  inbox: {wait: {hook: $T, timeout: $W, until: "payload.parcel % 3 == 0", on_unread: restart}}`,
	`nodes:
  inbox: {wait: {hook: $T, timeout: $W, on_unread: restart}}`,
	`nodes:
  inbox: {wait: {hook: $T, timeout: $W, on_unread: restart}}
  work: {call: work, timeout: 20s, input: {from: node:inbox}}
  more: {wait: {from: inbox, timeout: 10ms}, depends_on: [work], on_error: continue}`,
	`nodes:
  inbox: {wait: {hook: $T, timeout: $W, count: 2, on_unread: restart}}
  nap: {sleep: 20ms, depends_on: [inbox]}`,
	`nodes:
  inbox: {wait: {hook: $T, timeout: $W, hold: true}}
  second: {wait: {from: inbox, timeout: 5s}, on_error: continue}
  end: {release: {hook: inbox, unread: take}, depends_on: [second], require: terminal}
  after: {sleep: 1s, depends_on: [end]}`,
	`nodes:
  inbox: {wait: {hook: $T, timeout: $W, hold: true}}
  nap: {sleep: 10ms, depends_on: [inbox]}
  end: {release: {hook: inbox, unread: discard}, depends_on: [nap]}
  after: {sleep: 1s, depends_on: [end]}`,
	`nodes:
  inbox: {wait: {hook: $T, timeout: $W, hold: true}}
  second: {wait: {from: inbox, timeout: 3s}}
  third: {wait: {from: inbox, timeout: 1m, count: 2}}
  nap: {sleep: 10ms, depends_on: [inbox]}
  end: {release: {hook: inbox}, depends_on: [nap], on_error: continue}`,
	`nodes:
  inbox: {wait: {hook: $T, timeout: $W, retain: 3s}}
  nap: {sleep: 1s, depends_on: [inbox]}`,
	`nodes:
  inbox: {wait: {hook: $T, timeout: $W, schema: {type: object, required: [ok]}, on_unread: restart, respond: {run: true}}}
  answer: {respond: {to: inbox, with: 1}, depends_on: [inbox]}`,
	`nodes:
  inbox: {wait: {hook: $T, timeout: $W, on_unread: restart}}
  other: {wait: {hook: "${{ 'also ' + input.token }}", timeout: $S, on_unread: restart}, on_error: continue}
  both: {set: {with: 1}, depends_on: [inbox, other], require: terminal}`,
	// From here on they are not started by deliveries: their waits may be over
	// before the delivery is there.
	`nodes:
  nap: {sleep: 10ms}
  inbox: {wait: {hook: $T, timeout: $S}, depends_on: [nap]}`,
	`nodes:
  inbox: {wait: {hook: $T, timeout: $S, hold: true, count: 2, on_unread: restart}, on_error: continue}
  alarm: {sleep: 40ms}
  end: {wait: {from: inbox, timeout: 100ms}, depends_on: [alarm]}`,
	`nodes:
  ask: {wait: {approve: {q: yes}, timeout: $S, tags: {t: $T}}}`,
	`nodes:
  inbox: {wait: {hook: $T, timeout: $W, takeover: true, on_unread: restart}}`,
	`nodes:
  nap: {sleep: 10ms}
  inbox: {wait: {hook: $T, timeout: $S, takeover: true}, depends_on: [nap]}`,
}

const (
	startable = 12 // so many of them may be started by a delivery
	peaceful  = 15 // so many do not take over
)

// define gives the hash of a definition, whose plan is kept.
func (w *World) define(at int, token string) drover.Hash {
	long := []string{"20m", "30m"}[w.rng.IntN(2)]
	short := []string{"30ms", "3s", "1m"}[w.rng.IntN(3)]
	text := strings.NewReplacer("$T", token, "$W", long, "$S", short).Replace(definitions[at])
	last, _, _ := strings.Cut(text[strings.LastIndex(text, "\n")+1:], ":")
	text += "\noutput: {from: node:" + strings.TrimSpace(last) + "}"
	def, err := drover.ParseDefinition([]byte(text))
	if err != nil {
		w.violated("definition %d: %v", at, err)
		return ""
	}
	_, hash, err := def.Canonical()
	if err == nil && w.plans[hash] == nil {
		w.plans[hash], err = machine.Compile(def)
	}
	if err != nil {
		w.violated("definition %d: %v", at, err)
	}
	return hash
}

// inhabit gives a world with hooks its tokens, runs and senders.
func (w *World) inhabit() {
	h := &hooked{stopped: map[drover.RunID]bool{}, kept: map[drover.RunID]int{}, ledger: newLedger()}
	w.hooked = h
	h.takers = w.chance(0.4)
	for n := range 1 + w.rng.IntN(2) {
		h.tokens = append(h.tokens, fmt.Sprintf("t%d", n))
	}
	for range 1 + w.rng.IntN(5) {
		h.moments = append(h.moments, w.now.Add(time.Duration(w.rng.Int64N(int64(40*time.Second)))))
	}
	var all []drover.RunID
	for n := range w.rng.IntN(6) {
		id := drover.RunID(fmt.Sprintf("c%d", n))
		all = append(all, id)
		token := h.tokens[w.rng.IntN(len(h.tokens))]
		at := w.rng.IntN(peaceful)
		if h.takers && w.chance(0.5) {
			at = peaceful + w.rng.IntN(len(definitions)-peaceful)
		}
		req := &drover.StartRequest{Hash: w.define(at, token), Input: input(token)}
		if w.told.heirs != nil {
			req.Notify = drover.NotifyList{{Subject: "told.a"}}
			w.replyTo(id, req)
		}
		w.starts[id] = req
		w.sometime(func() { w.append(id, drover.VerbStart, req) })
	}
	for n := range 3 + w.rng.IntN(20) {
		w.post(w.parcel(n))
	}
	for range w.rng.IntN(3) {
		w.sometime(func() { w.stopOne(all) })
	}
	w.sometime(w.approve)
	w.at(w.now.Add(10*time.Second), w.sweep)
}

func input(token string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"token":%q}`, token))
}

// sometime has something happen when other things happen too.
func (w *World) sometime(do func()) {
	m := w.hooked.moments[w.rng.IntN(len(w.hooked.moments))]
	w.at(m.Add(time.Duration(w.rng.Int64N(int64(30*time.Millisecond)))), do)
}

// stopOne stops a run, or the one that a key names.
func (w *World) stopOne(all []drover.RunID) {
	if rec, err := w.tokens.get(w.hooked.tokens[0]); err == nil && (len(all) == 0 || w.chance(0.5)) {
		if held, err := hook.Decode("", rec); err == nil {
			all = []drover.RunID{held.Run}
		}
	}
	if len(all) > 0 {
		id := all[w.rng.IntN(len(all))]
		w.hooked.stopped[id] = true
		w.append(id, drover.VerbStop, drover.StopRequest{Reason: "enough"})
	}
}

// parcel makes a delivery: with an id or without, and perhaps with a start.
func (w *World) parcel(n int) *parcel {
	h := w.hooked
	p := &parcel{n: n, req: drover.HookRequest{Token: h.tokens[w.rng.IntN(len(h.tokens))]}}
	pad, ok := "", ""
	if w.chance(0.1) {
		pad = strings.Repeat("x", 3000)
	}
	if w.chance(0.8) {
		ok = `,"ok":true`
	}
	p.req.Payload = json.RawMessage(fmt.Sprintf(`{"parcel":%d,"pad":%q%s}`, n, pad, ok))
	if w.chance(0.7) {
		p.req.ID = fmt.Sprintf("id%d", n)
		p.repeat = w.rng.IntN(3)
		if w.chance(0.1) {
			p.req.ID = "shared" // by several payloads, of which one wins
		}
	}
	switch {
	case w.chance(0.6):
		p.req.Start = &drover.StartRequest{Hash: w.define(w.rng.IntN(startable), p.req.Token), Input: input(p.req.Token)}
		if w.chance(0.1) {
			p.req.Start.RunID = drover.RunID("named-" + p.req.Token)
			p.req.Start.Hash = w.define(0, p.req.Token)
		}
		if w.told.heirs != nil {
			p.req.Start.Notify = drover.NotifyList{{Subject: "told.b"}}
		}
	case w.chance(0.1):
		p.req.Async = true
	case w.chance(0.1):
		p.req.Token = "also " + p.req.Token
	}
	h.parcels = append(h.parcels, p)
	return p
}

// post has a client send a parcel, until it knows what became of it.
func (w *World) post(p *parcel) {
	w.sometime(func() { w.send(p) })
}

func (w *World) send(p *parcel) {
	if s := p.req.Start; s != nil {
		if err := w.plans[s.Hash].CheckHook(p.req.Token, p.req.Payload); err != nil {
			p.err, p.over = err, true // the service looks first
			return
		}
	}
	p.tries++
	known := false
	w.spawn(fmt.Sprintf("sender of %d", p.n), nil, func(c *calls) {
		req := p.req
		reply, err := c.sender().Deliver(context.Background(), &req)
		w.follow("parcel %d: %+v, %v", p.n, reply, err)
		if c.killed || errors.Is(err, errKilled) || errors.Is(err, drover.CodeUnavailable) {
			return
		}
		known = true
		w.heardOf(p, reply, err)
	}, func(bool) {
		switch {
		case !known && p.req.ID != "":
			w.at(w.now.Add(w.latency()*100), func() { w.send(p) })
		case known && p.err == nil && p.repeat > 0 && !p.req.Async:
			p.repeat--
			w.at(w.now.Add(time.Duration(w.rng.Int64N(int64(time.Minute)))), func() { w.send(p) })
		default:
			p.over = true
		}
	})
}

// heardOf is what the sender of a parcel is told.
func (w *World) heardOf(p *parcel, reply *drover.HookReply, err error) {
	if p.reply != nil && (err != nil || !reply.Repeat || reply.RunID != p.reply.RunID) {
		w.violated("parcel %d was accepted by %s, and a repeat gives %+v, %v", p.n, p.reply.RunID, reply, err)
	}
	if err != nil {
		code := drover.AsError(err, drover.CodeInternal).Code
		switch code {
		case drover.CodeNotFound, drover.CodeConflict, drover.CodeInvalidInput, drover.CodeTerminal:
		default:
			w.violated("the sender of parcel %d is told: %v", p.n, err)
		}
		p.err = err
		return
	}
	p.reply = reply
}

// approve says yes or no to whatever asks for it.
func (w *World) approve() {
	w.spawn("approver", nil, func(c *calls) {
		var tokens []string
		_ = c.Scan(context.Background(), func(token string, rec kv.Record) bool {
			if held, err := hook.Decode(token, rec); err == nil && held.Public {
				tokens = append(tokens, token)
			}
			return true
		})
		for _, token := range tokens {
			p := &parcel{n: 1000 + len(w.hooked.parcels), over: true}
			w.hooked.parcels = append(w.hooked.parcels, p)
			p.req = drover.HookRequest{Token: token, Public: true, Payload: json.RawMessage(fmt.Sprintf(`{"approved":true,"parcel":%d}`, p.n))}
			req := p.req
			reply, err := c.sender().Deliver(context.Background(), &req)
			if c.killed || errors.Is(err, errKilled) || errors.Is(err, drover.CodeUnavailable) {
				return
			}
			w.heardOf(p, reply, err)
		}
	}, nil)
}
