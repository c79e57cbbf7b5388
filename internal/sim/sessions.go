package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/seal"
	"github.com/droverhq/drover/subjects"
)

const sessionTemplate = "This is what came of it."

// fleetSecret is what the workers of a world seal sessions with.
var fleetSecret = []byte("the secret of the fleet")

// sessions are those of users of other accounts, and of a call.
var sessions = []string{
	subjects.SessionOfUser("acme", "kim"), subjects.SessionOfUser("acme", "lee"), subjects.SessionOfCall("agent-7"),
}

// replyTo has the service take a start with reply_to: it sees who asks, and seals
// that for the run.
func (w *World) replyTo(run drover.RunID, req *drover.StartRequest) {
	session := sessions[w.rng.IntN(len(sessions))]
	w.told.callers[run] = session
	n := drover.Notify{Session: session, Seal: seal.Seal(fleetSecret, run, session), Inline: w.chance(0.3)}
	if w.chance(0.5) {
		n.Template = sessionTemplate
	}
	if w.chance(0.3) {
		n.MaxAttempts = 2
	}
	req.Notify = append(req.Notify, n)
}

// inherited has those who are told of a run be told of its successor too: the
// worker that hands over seals the session for that one.
func (w *World) inherited(run, heir drover.RunID, told drover.NotifyList) drover.NotifyList {
	if session := w.told.callers[run]; session != "" {
		w.told.callers[heir] = session
	}
	if w.told.heirs != nil {
		w.told.heirs[heir] = true
	}
	return seal.Again(fleetSecret, heir, told)
}

// forge has somebody who may publish commands start a run that would answer to the
// session of another.
func (w *World) forge() {
	run := drover.RunID(fmt.Sprintf("forged%d", len(w.told.forged)+1))
	n := drover.Notify{Session: sessions[0]}
	kind := w.rng.IntN(4)
	switch kind {
	case 0: // without a seal
	case 1:
		n.Seal = seal.Seal([]byte("a guess"), run, n.Session)
	case 2: // one that was seen
		n.Seal = seal.Seal(fleetSecret, "run1", n.Session)
	default: // its own
		n.Seal = seal.Seal(fleetSecret, run, sessions[1])
	}
	w.told.forged[run] = 0
	w.within(2*time.Minute, func() {
		w.told.forged[run] = w.store(run, drover.VerbStart, drover.StartRequest{
			Definition: json.RawMessage(works[0]), Notify: drover.NotifyList{n},
		}, false)
		w.saw(fmt.Sprintf("Delivery02 a session was named with a wrong seal of kind %d", kind))
	})
}

// forgedToo holds that no start with a forged session made a run.
func (w *World) forgedToo() {
	for _, run := range slices.Sorted(maps.Keys(w.told.forged)) {
		seq := w.told.forged[run]
		if seq == 0 {
			continue // not yet
		}
		letter := w.dead[seq]
		if _, ok := w.records[run]; ok || letter == nil || letter.Code != drover.CodeForbidden && letter.Code != drover.CodeInvalidRequest {
			w.violated("run %s, whose session was forged by command %d, has a record: %t, and the dead letter %v", run, seq, ok, letter)
		}
	}
}
