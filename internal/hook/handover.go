package hook

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/machine"
	"github.com/droverhq/drover/kv"
)

// HandOver is what a run that is over leaves to its successor.
type HandOver struct {
	From       drover.RunID
	To         drover.RunID         // the successor
	Start      *drover.StartRequest // of the successor; its Hooks are the tokens
	Deliveries []machine.Handed     // oldest first
	// Payload gives the payload of a delivery, or false where it is gone.
	Payload func(ctx context.Context, v machine.Value) (json.RawMessage, bool, error)
	// Told gives those who are told as they are named in the start of one heir; nil:
	// as they are.
	Told func(heir drover.RunID, told drover.NotifyList) drover.NotifyList
}

// startOf is the start of one heir.
func (h *HandOver) startOf(heir drover.RunID) drover.StartRequest {
	start := *h.Start
	if h.Told != nil {
		start.Notify = h.Told(heir, start.Notify)
	}
	return start
}

// maxRefused is how many heirs in a row may refuse a delivery before it is given
// up: they are all alike, so that one more will do no better.
const maxRefused = 4

// HandOver starts the successor of a run, gives it what nothing has read, in
// order, and then the tokens.
//
// A successor may be over before it has everything. It answers then who its own
// successor is, where it had something left to hand over: that one has older
// deliveries, so it gets the rest only once the key says that it has those.
// Otherwise another heir is started for the rest.
func (c *Claimant) HandOver(ctx context.Context, h *HandOver) error {
	over := true
	for _, token := range h.Start.Hooks {
		done, err := c.bequeath(ctx, h.From, token, h.To)
		if err != nil {
			return err
		}
		over = over && done
	}
	if over {
		return nil
	}
	start := h.startOf(h.To)
	if err := c.Log.Send(ctx, h.To, drover.VerbStart, &start); err != nil {
		return err
	}
	to, lost, err := c.giveAll(ctx, h)
	if err != nil {
		return err
	}
	for _, token := range h.Start.Hooks {
		if n := lost[token]; n > 0 && c.Undelivered != nil {
			c.Undelivered(h.From, token, n)
		}
		if err := c.pass(ctx, h.From, token, to[token]); err != nil {
			return err
		}
	}
	return nil
}

// giveAll gives every delivery to an heir. It says for each token which heir has
// the last one, "" where nobody takes any more, and how many nobody has.
func (c *Claimant) giveAll(ctx context.Context, h *HandOver) (to map[string]drover.RunID, lost map[string]int, err error) {
	to, lost = map[string]drover.RunID{}, map[string]int{}
	for _, token := range h.Start.Hooks {
		to[token] = h.To
	}
	for i := range h.Deliveries {
		d := &h.Deliveries[i]
		if to[d.Token] == "" {
			lost[d.Token]++
			continue
		}
		payload, there, err := h.Payload(ctx, d.Payload)
		if err != nil {
			return nil, nil, err
		}
		m := &drover.DeliverRequest{Hook: d.Token, ID: d.ID, Payload: payload, Respond: d.Respond}
		heir := to[d.Token]
		if there {
			heir, err = c.give(ctx, h, m, heir)
		}
		switch {
		case !there || errors.Is(err, drover.CodeTooLarge):
			lost[d.Token]++ // this one alone
		case err != nil:
			return nil, nil, err
		default:
			if to[d.Token] = heir; heir == "" {
				lost[d.Token]++
			}
		}
	}
	return to, lost, nil
}

// bequeath makes a run an heir of a token, before it is started. It is true
// where the token was handed over before.
func (c *Claimant) bequeath(ctx context.Context, from drover.RunID, token string, to drover.RunID) (bool, error) {
	for {
		held, err := Read(ctx, c.Claims, token)
		switch {
		case err != nil:
			return false, err
		case held != nil && slices.Contains(held.Trail, from):
			return true, nil
		case !held.passesThrough(from), held.heir(to) != nil:
			return false, nil
		default:
			held.Heirs = append(held.Heirs, Heir{Run: to})
			err = held.update(ctx, c.Claims)
		}
		if !errors.Is(err, kv.ErrConflict) || ctx.Err() != nil {
			return false, err
		}
	}
}

// passesThrough reports whether a token goes from a run to its heirs, now or when
// it is that run's turn. It does not where another took it, or it was freed: then
// the heirs, who claim it as well, get it if they can.
func (h *Held) passesThrough(run drover.RunID) bool {
	return h != nil && (h.Run == run || h.heir(run) != nil)
}

// give gives a delivery to an heir, or to the one after it. It gives the heir
// that has it, or none where all refuse it.
func (c *Claimant) give(ctx context.Context, h *HandOver, d *drover.DeliverRequest, to drover.RunID) (drover.RunID, error) {
	no := map[drover.RunID]bool{} // who has refused it
	for refusals := 0; refusals < maxRefused; {
		var reply drover.DeliverReply
		err := c.Log.Ask(ctx, to, drover.VerbDeliver, d, &reply)
		if err == nil {
			return to, nil
		}
		if !refuses(err) {
			return "", err
		}
		no[to] = true
		successor := successorOf(err)
		if successor == "" {
			refusals++
		}
		if to, err = c.another(ctx, h, d, to, successor, no); err != nil {
			return "", err
		}
	}
	return "", nil
}

// another gives who is to have a delivery that an heir refuses. A reservation
// names that run before it is asked, so that the next attempt asks the same one,
// whatever has become of the token by then.
func (c *Claimant) another(ctx context.Context, h *HandOver, d *drover.DeliverRequest, heir, successor drover.RunID, no map[drover.RunID]bool) (drover.RunID, error) {
	rec, err := c.Claims.Reserved(ctx, d.Hook, d.ID)
	if err != nil && !errors.Is(err, drover.CodeNotFound) {
		return "", err
	}
	var r Reservation
	if rec.Revision > 0 && json.Unmarshal(rec.Data, &r) == nil && !no[r.Run] {
		// Whoever reserved it may not have started it yet, and must not find later
		// that we have passed it over.
		if _, err := c.Runs.Load(ctx, r.Run); !errors.Is(err, drover.CodeNotFound) {
			return r.Run, err
		}
		return r.Run, c.begin(ctx, h, d.Hook, r.Run)
	}
	next, begins, err := c.choose(ctx, h, d, heir, successor, no)
	if err != nil {
		return "", err
	}
	_, err = c.Claims.Reserve(ctx, d.Hook, d.ID, rec.Revision, encode(Reservation{Run: next, Digest: digest(d.Payload)}), reservedFor)
	switch {
	case errors.Is(err, kv.ErrConflict):
		return heir, nil // ask it again, and look again
	case err != nil || !begins:
		return next, err
	}
	return next, c.begin(ctx, h, d.Hook, next)
}

// choose gives who comes after an heir that refuses a delivery: the one that it
// has handed over to, or whoever took the token, or one more heir, which is still
// to begin.
func (c *Claimant) choose(ctx context.Context, h *HandOver, d *drover.DeliverRequest, heir, successor drover.RunID, no map[drover.RunID]bool) (next drover.RunID, begins bool, err error) {
	if successor != "" {
		next, err = c.after(ctx, h.From, d.Hook, heir, successor)
		return next, false, err
	}
	held, err := Read(ctx, c.Claims, d.Hook)
	if err != nil {
		return "", false, err
	}
	if held != nil && !held.passesThrough(h.From) && !no[held.Run] {
		d.Claim = held.Revision
		return held.Run, false, nil
	}
	// Not the id of its successor, which it may have for another token.
	return drover.SuccessorID(drover.RunID(string(heir) + "/" + d.Hook)), true, nil
}

// begin starts one more heir, for a token.
func (c *Claimant) begin(ctx context.Context, h *HandOver, token string, heir drover.RunID) error {
	if _, err := c.bequeath(ctx, h.From, token, heir); err != nil {
		return err
	}
	start := h.startOf(heir)
	start.Hooks = []string{token}
	return c.Log.Send(ctx, heir, drover.VerbStart, &start)
}

// after gives who has what an heir had that is over, once it is there.
func (c *Claimant) after(ctx context.Context, from drover.RunID, token string, heir, successor drover.RunID) (drover.RunID, error) {
	for n := 0; ; n++ {
		next, err := c.next(ctx, from, token, heir, successor)
		if next != "" || err != nil {
			return next, err
		}
		if c.Pause == nil || n == maxPauses {
			return "", drover.Errorf(drover.CodeUnavailable,
				"run %s is handing token %q over to run %s: what run %s has for it comes after that", heir, token, successor, from)
		}
		if err := c.Pause(ctx, n); err != nil {
			return "", err
		}
	}
}

// maxPauses is how often a hand-over looks for another that it waits for. Then
// it fails, and is tried again, as the other may need its place.
const maxPauses = 8

// next is after, or "" where it is not known yet.
func (c *Claimant) next(ctx context.Context, from drover.RunID, token string, heir, successor drover.RunID) (drover.RunID, error) {
	held, err := Read(ctx, c.Claims, token)
	if err != nil {
		return "", err
	}
	if held.passesThrough(from) && held.heir(heir) != nil {
		return held.heir(heir).Next, nil
	}
	if _, err := c.Runs.Load(ctx, successor); errors.Is(err, drover.CodeNotFound) {
		return "", nil // the heir has still to start it
	} else if err != nil {
		return "", err
	}
	return successor, nil
}

// pass gives a token to the heir that has the last delivery, or says to the
// predecessor of the run, which has it still, who goes on. Without an heir the
// token becomes free.
func (c *Claimant) pass(ctx context.Context, from drover.RunID, token string, to drover.RunID) error {
	for {
		held, err := Read(ctx, c.Claims, token)
		if err != nil || held == nil {
			return err
		}
		if held.Run == from { // it may have ended before the run that it took the token from was told
			if err := c.tell(ctx, held); err != nil {
				return err
			}
		}
		mine := held.heir(from)
		switch {
		case held.Run == from && to == "":
			err = c.Claims.Release(ctx, token, held.Revision)
		case held.Run == from:
			held.settle(to, c.Now())
			err = held.update(ctx, c.Claims)
		case mine != nil && mine.Next == "" && to != "":
			mine.Next = to
			err = held.update(ctx, c.Claims)
		default:
			return nil
		}
		if !errors.Is(err, kv.ErrConflict) || ctx.Err() != nil {
			return err
		}
	}
}

// settle makes an heir, or the last of those that it has handed over to, the
// owner. Heirs that come after it are its own.
func (h *Held) settle(to drover.RunID, now time.Time) {
	for range h.Heirs {
		if next := h.heir(to); next != nil && next.Next != "" {
			to = next.Next
		}
	}
	at := slices.IndexFunc(h.Heirs, func(x Heir) bool { return x.Run == to })
	trail := append(h.Trail, h.Run)
	var claim *machine.Claim
	var rest []Heir
	if at >= 0 {
		claim, rest = h.Heirs[at].Claim, h.Heirs[at+1:]
		for _, x := range h.Heirs[:at] {
			trail = append(trail, x.Run)
		}
	}
	if claim == nil {
		was := h.Claim.Claim
		claim = &was
		claim.Run, claim.ID, claim.Node, claim.Proof, claim.Since = to, machine.ClaimID(to, ""), "", "", now
	}
	h.Claim = Claim{Claim: *claim, Heirs: rest, Lost: h.Lost, Trail: last(trail, maxTrail)}
}

// refuses reports that a run does not hold a token, or is over.
func refuses(err error) bool {
	return errors.Is(err, drover.CodeNotFound) || errors.Is(err, drover.CodeTerminal)
}

// successorOf gives the run that a run which refuses has handed over to, or "".
func successorOf(err error) drover.RunID {
	e, ok := errors.AsType[*drover.Error](err)
	if !ok {
		return ""
	}
	return e.Run
}
