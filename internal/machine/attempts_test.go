package machine

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

func TestDelivery08SubscribersAreIndependent(t *testing.T) {
	w := newWorld(t, oneCall).over(drover.Notify{Subject: "slow"}, drover.Notify{Subject: "broken"}, drover.Notify{Subject: "well"})
	w.hear(1, 1, "", bad("no"))
	w.wantEffects("list 1")
	w.hear(2, 1, "thanks", nil)
	w.wantEffects() // one that succeeds at once was never listed
	w.wantDeliveries("pending pending@1 delivered@1")
	w.next()
	w.wantEffects("deliver 1@2") // nobody else's
	w.hear(1, 2, "", bad("no"))
	w.wantEffects() // listed already
	w.next()
	w.wantEffects("deliver 1@3")
	w.hear(1, 3, "", nil)
	w.wantEffects("unlist 1")
	w.wantDeliveries("pending delivered@3 delivered@1")
	w.next() // the slow one was not heard of in its time
	w.wantEffects("deliver 0@1")
	if w.now.Sub(epoch) != drover.DefaultReceiptTime+slack {
		t.Errorf("made again after %s", w.now.Sub(epoch))
	}
}

func TestDelivery09BackoffGrowsTo5Minutes(t *testing.T) {
	for name, e := range map[string]drover.HeardMessage{"failed": {Error: bad("no")}, "unmade": {Error: bad("nobody"), Unmade: true}} {
		w := newWorld(t, oneCall).over(drover.Notify{Subject: "a"})
		ended := w.now
		var last time.Duration
		tries := 0
		for ; w.s.Notify[0].Status == drover.DeliveryPending && tries < 2000; tries++ {
			e.Attempt = w.s.Notify[0].Tried + 1
			w.hears(0, e)
			if w.s.Notify[0].Status == drover.DeliveryPending {
				pause := w.s.Deadline().Time().Sub(w.now)
				if left := ended.Add(drover.DefaultDeliveryAge).Sub(w.now); pause != left && (pause < 900*time.Millisecond || pause > 330*time.Second || pause < last/2) {
					t.Fatalf("%s: pause %d is %s, after %s", name, tries, pause, last)
				} else {
					last = pause
				}
				w.next()
				w.attempt()
			}
		}
		if w.now.Sub(ended) != drover.DefaultDeliveryAge || w.s.Notify[0].Status != drover.DeliveryDead || tries < 280 || tries > 340 {
			t.Errorf("%s: %s after %s and %d tries", name, w.statuses(), w.now.Sub(ended), tries)
		}
		if counted := w.s.Notify[0].Tried; counted != map[string]int{"failed": tries, "unmade": 0}[name] {
			t.Errorf("%s: %d attempts are counted of %d", name, counted, tries)
		}
	}
}

// The last attempt comes when the age is used up, also where nothing was looked
// at for far longer; one that is lost then is the last as well.
func TestDelivery09TheLastAttemptComesAtTheEndOfTheAge(t *testing.T) {
	minute := drover.Notify{Subject: "a", MaxAge: drover.Duration(time.Minute)}
	for name, c := range map[string]struct {
		late time.Duration
		end  func(w *world)
		want string
	}{
		"heard":       {0, func(w *world) { w.hear(0, 2, "", nil) }, "delivered@2"},
		"failed":      {0, func(w *world) { w.hear(0, 2, "", bad("no")) }, "dead@2"},
		"lost":        {0, func(w *world) { w.next() }, "dead@1"},
		"days later":  {48 * time.Hour, func(w *world) { w.hear(0, 2, "", nil) }, "delivered@2"},
		"days wasted": {48 * time.Hour, func(w *world) { w.next() }, "dead@1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, oneCall).over(minute)
			w.hear(0, 1, "", &drover.Error{Code: "x", Message: "later", RetryAfter: drover.Duration(time.Hour)})
			if got := w.s.Deadline().Time().Sub(epoch); got != time.Minute {
				t.Fatalf("the last attempt comes after %s", got)
			}
			w.now = w.s.Deadline().Time().Add(c.late)
			w.tick()
			w.wantEffects("deliver 0@2")
			c.end(w)
			w.wantDeliveries(c.want)
		})
	}
}

func TestDelivery10WhatWasNotMadeIsNotCounted(t *testing.T) {
	w := newWorld(t, oneCall).over(drover.Notify{Subject: "away", MaxAttempts: 2})
	for range 20 {
		w.hears(0, drover.HeardMessage{Attempt: 1, Error: bad("nobody is there"), Unmade: true})
		w.next()
		w.wantEffects("deliver 0@1")
	}
	w.wantDeliveries("pending")
	w.hears(0, drover.HeardMessage{Attempt: 1, Error: bad("busy")})
	w.wantDeliveries("pending@1")
	w.hears(0, drover.HeardMessage{Attempt: 1, Error: bad("busy")}) // said twice
	w.hears(0, drover.HeardMessage{Attempt: 1, Error: bad("nobody is there"), Unmade: true})
	if w.last.Changed {
		t.Error("an attempt that was heard of was heard of again")
	}
	w.hear(0, 2, "here I am", nil)
	w.wantDeliveries("delivered@2")
	if d := w.view().Deliveries[0]; d.Attempts != 2 || d.LastError != nil || d.NextAt != nil || !d.EndedAt.Equal(w.now) {
		t.Errorf("%s", show(d))
	}
}

func TestDelivery07ReceiptsOfEarlierAttempts(t *testing.T) {
	w := newWorld(t, oneCall).over(drover.Notify{Subject: "a"}, drover.Notify{Subject: "b", MaxAttempts: 1})
	w.hear(0, 1, "", bad("timeout"))
	w.next()
	w.hear(0, 1, "slow, but there", nil)
	w.wantEffects("unlist 0")
	w.hear(0, 2, "again", nil)
	if w.last.Changed || w.view().Deliveries[0].Receipt != "slow, but there" {
		t.Error("the second receipt counts")
	}
	w.hear(1, 1, "", bad("timeout"))
	w.wantEffects("list 1 as dead")
	w.wantDeliveries("delivered@1 dead@1")
	w.hear(1, 3, "", nil) // no attempt has this number
	w.wantDeliveries("delivered@1 dead@1")
	w.hear(1, 1, "late", nil) // of one that is dead
	w.wantEffects("unlist 1")
	w.hear(0, 7, "", bad("no"))
	w.wantDeliveries("delivered@1 delivered@1")
}

func TestDelivery12DeadOnesAreKeptAndReplayed(t *testing.T) {
	w := newWorld(t, oneCall).over(drover.Notify{Subject: "a", MaxAttempts: 2}, drover.Notify{Subject: "b"}, drover.Notify{Subject: "c"})
	w.hear(0, 1, "", bad("no"))
	w.hear(0, 2, "", bad("still no"))
	w.hear(1, 1, "", &drover.Error{Code: "gone", Message: "410", Permanent: true})
	w.hear(2, 1, "", nil)
	w.wantDeliveries("dead@2 dead@1 delivered@1")
	w.wantWhy("subscriber: subject a was not told: it was given up at 2030-01-01T00:00:00Z after 2 attempts, as its max_attempts is 2; replay delivery r1:terminal:0 to try again; the last one failed: still no",
		"subscriber: subject b was not told: it was given up at 2030-01-01T00:00:00Z after 1 attempt, as no attempt will do (permanent); replay delivery r1:terminal:1 to try again; the last one failed: 410")
	if w.s.Deadline() != 0 {
		t.Error("something is due for what is dead")
	}
	replayed := func(want int) {
		t.Helper()
		if got, ok := w.last.Answer.(drover.ReplayedReply); !ok || got != (drover.ReplayedReply{RunID: "r1", Replayed: want}) {
			t.Errorf("the answer is %s (%v), want %d replayed", show(w.last.Answer), w.last.Refused, want)
		}
	}
	w.pass(time.Hour).replay("1")
	w.wantEffects("deliver 1@2", "list 1") // it waits again
	replayed(1)
	w.replay("2")
	w.wantEffects() // who was told is not told again
	replayed(0)
	w.replay("")
	w.wantEffects("deliver 0@3", "list 0", "deliver 1@2")
	replayed(2)
	w.hear(0, 3, "", bad("no"))
	w.wantDeliveries("pending@3 pending@1 delivered@1") // the first of two in its new life
	w.hear(1, 2, "", nil)
	w.wantEffects("unlist 1")
	w.next()
	w.hear(0, 4, "", bad("no"))
	w.wantEffects("list 0 as dead")
	w.wantDeliveries("dead@4 delivered@2 delivered@1")
	w.replay("9")
	w.wantRefused(drover.CodeNotFound, "r1:terminal:9")
}

// A worker that dies again and again, perhaps of this outcome, is not given it all
// the time. What nobody heard of is not counted: it may not have been made.
func TestDelivery09LostAttemptsComeEverLater(t *testing.T) {
	w := newWorld(t, oneCall).over(drover.Notify{Subject: "a", MaxAttempts: 3})
	lost := func(times int) (pauses []time.Duration) {
		t.Helper()
		for range times {
			was := w.now
			w.next()
			w.wantEffects("deliver 0@" + strconv.Itoa(w.s.Notify[0].Tried+1))
			pauses = append(pauses, w.now.Sub(was))
		}
		return pauses
	}
	lease := drover.DefaultReceiptTime + slack
	pauses := lost(20)
	for i, pause := range pauses {
		want := max(lease, deliveryPause("r1:terminal:0", i+1)) // as after a failure
		if pause < want || pause > want+time.Millisecond {
			t.Errorf("after %d lost attempts the next one came after %s, want %s", i+1, pause, want)
		}
	}
	if pauses[3] > lease || pauses[19] < maxPause/2 {
		t.Errorf("the pauses were %s", pauses)
	}
	w.wantDeliveries("pending")
	w.hear(0, 1, "", bad("no")) // the last one was not lost
	w.wantDeliveries("pending@1")
	if got := w.s.Deadline().Time().Sub(w.now); got > 2*time.Second {
		t.Errorf("after the first failure the next attempt is in %s", got)
	}
	w.next()
	if got := lost(1)[0]; got > lease {
		t.Errorf("a first attempt that was lost is made again after %s", got)
	}
	w.replay("")
	if got := w.s.Deadline().Time().Sub(w.now); got > lease {
		t.Errorf("one that was replayed is waited for %s", got)
	}
}

// However many attempts are lost, the last one comes at the end of the age.
func TestDelivery09LostAttemptsEndWithTheAge(t *testing.T) {
	w := newWorld(t, oneCall).over(drover.Notify{Subject: "a", MaxAge: drover.Duration(10 * time.Minute)})
	ended, last := w.now, w.now
	for w.s.Notify[0].Status == drover.DeliveryPending {
		if w.next(); w.s.Notify[0].Status == drover.DeliveryPending {
			last = w.now
		}
	}
	if got := last.Sub(ended); got != 10*time.Minute {
		t.Errorf("the last attempt came %s after the end of the run", got)
	}
	if got := w.now.Sub(last); got != drover.DefaultReceiptTime+slack {
		t.Errorf("it was waited for %s", got)
	}
	w.wantDeliveries("dead")
}

func TestDelivery12APendingOneIsReplayedAtOnce(t *testing.T) {
	w := newWorld(t, oneCall)
	w.begin(drover.Notify{Subject: "a", MaxAge: drover.Duration(time.Minute)}).replay("")
	w.wantRefused(drover.CodeConflict, "not over")
	w.ok("a@1", `1`)
	w.hear(0, 1, "", &drover.Error{Code: "x", RetryAfter: drover.Duration(time.Hour)})
	w.replay("")
	w.wantEffects("deliver 0@2")
	w.wantDeliveries("pending@1")
	w.pass(time.Hour).replay("") // nothing was looked at until its age was long over
	w.wantEffects("deliver 0@2")
	w.hear(0, 2, "", bad("no"))
	if got := w.s.Deadline().Time().Sub(w.now); got > 2*time.Second || w.statuses() != "pending@2" {
		t.Errorf("replayed, it is %s for %s", w.statuses(), got)
	}
}

func TestDelivery01AFunctionIsTold(t *testing.T) {
	hour := drover.Notify{Function: "audit.log", MaxAge: drover.Duration(time.Hour)}
	begin := func(t *testing.T) *world {
		w := newWorld(t, oneCall).over(hour)
		e := w.attempt()
		if e.Call.ID.String() != "r1/_outcome#0@1" || e.Call.Function != "audit.log" || !e.Call.Deadline.Equal(epoch.Add(time.Hour)) || e.Call.Token == e.Delivery.Token {
			t.Fatalf("the call is %s", show(e.Call))
		}
		if at := w.view().Deliveries[0].NextAt; at.Sub(epoch) != time.Hour {
			t.Errorf("the next attempt is at %s: its call is in the queue", at)
		}
		return w
	}
	t.Run("that it ends well is the receipt", func(t *testing.T) {
		w := begin(t)
		w.told(0, 1, drover.ResultMessage{Progress: raw(`true`)})
		w.wantDeliveries("pending")
		w.told(0, 1, drover.ResultMessage{Output: raw(`{"seen":1}`)})
		w.wantDeliveries("delivered@1")
		if w.view().Deliveries[0].Receipt != `{"seen":1}` {
			t.Error(show(w.view().Deliveries[0]))
		}
	})
	t.Run("a failure is tried again", func(t *testing.T) {
		w := begin(t)
		w.told(0, 1, drover.ResultMessage{Error: bad("disk is full")})
		w.wantEffects("list 0")
		w.next()
		if e := w.attempt(); e.Call.ID.String() != "r1/_outcome#0@2" || e.Call.Token != Token("s3cret", "deliver r1/_outcome#0@2") {
			t.Errorf("the call is %s", show(e.Call))
		}
		w.told(0, 1, drover.ResultMessage{}) // late, and true all the same
		w.wantDeliveries("delivered@1")
	})
	t.Run("nobody else can say so", func(t *testing.T) {
		w := begin(t)
		for _, token := range []string{"forged", Token("s3cret", "r1/_outcome#0@1"), Token("s3cret", "r1:terminal:0")} {
			w.told(0, 1, drover.ResultMessage{Token: token})
			w.wantRefused(drover.CodeForbidden, "token")
		}
		w.told(7, 1, drover.ResultMessage{})
		w.wantRefused(drover.CodeNotFound)
		w.wantDeliveries("pending")
	})
	t.Run("it dies in its queue", func(t *testing.T) {
		w := begin(t)
		w.next()
		w.wantEffects("list 0")
		w.next()
		w.wantEffects("withdraw audit.log r1/_outcome#0@1", "list 0 as dead")
		if call := w.effect(EffectWithdraw).Call; call.Token != Token("s3cret", "deliver r1/_outcome#0@1") {
			t.Errorf("the call that is taken out is %s", show(call))
		}
		w.wantDeliveries("dead")
		wantWords(t, w.s.Notify[0].Error.Message, "1h0m0s")
		w.replay("")
		w.wantEffects("deliver 0@1", "list 0")
	})
	t.Run("a replay of one that is listed waits for its call in the queue", func(t *testing.T) {
		w := begin(t)
		w.next()
		w.replay("")
		w.wantEffects("deliver 0@1")
		if got := w.s.Deadline().Time().Sub(epoch); got != time.Hour {
			t.Errorf("it is looked at again after %s", got)
		}
	})
	t.Run("a replay queues its call again, which may have been lost", func(t *testing.T) {
		w := begin(t)
		w.replay("")
		w.wantEffects("deliver 0@1")
	})
}

// A call that nobody answers is on the list soon, and no other attempt is made for
// that. One that is answered in time costs the list nothing.
func TestDelivery12AnUnansweredCallIsListed(t *testing.T) {
	call := drover.Notify{Function: "books.add"}
	w := newWorld(t, oneCall).over(call)
	w.told(0, 1, drover.ResultMessage{})
	w.wantEffects()
	w.wantDeliveries("delivered@1")

	w = newWorld(t, oneCall).over(call)
	if r := Why(w.p, w.s); len(r) != 1 || QueuedFor(w.s, &r[0]) != "books.add" || r[0].Until != "2030-01-02T00:00:00Z" ||
		r[0].Text != "function books.add was not told yet: attempt 1 is a call in its queue, or under way, until 2030-01-02T00:00:00Z" {
		t.Errorf("why says %+v", r)
	}
	w.next()
	w.wantEffects("list 0")
	if got := w.now.Sub(epoch); got != unanswered || !w.s.Notify[0].Listed {
		t.Errorf("after %s it is %+v", got, w.s.Notify[0])
	}
	w.told(0, 1, drover.ResultMessage{Error: bad("no")})
	w.wantDeliveries("pending@1")
	if r := Why(w.p, w.s); QueuedFor(w.s, &r[0]) != "" {
		t.Errorf("between attempts it waits in a queue: %+v", r)
	}
	w.next()
	w.wantEffects("deliver 0@2")
	w.told(0, 2, drover.ResultMessage{})
	w.wantEffects("unlist 0")

	w = newWorld(t, oneCall).over(drover.Notify{Function: "books.add", MaxAge: drover.Duration(time.Second)})
	w.next() // its age is less than what is waited for
	w.wantDeliveries("dead")
}

// A delivery that was given up says for which of the reasons.
func TestDelivery08WhySaysWhyItWasGivenUp(t *testing.T) {
	to := drover.Notify{Subject: "a.b", MaxAttempts: 2}
	gaveUp := func(w *world, want string) {
		t.Helper()
		w.wantDeliveries("dead@" + want[:1])
		if r := Why(w.p, w.s); !strings.Contains(r[0].Text, want[2:]) {
			t.Errorf("why says %q, want it to have %q", r[0].Text, want[2:])
		}
		if got := w.view().Deliveries[0].GaveUp; got == "" || !strings.Contains(want, string(got)) {
			t.Errorf("it shows %q, want %q", got, want)
		}
	}
	w := newWorld(t, oneCall).over(to)
	w.hear(0, 1, "", &drover.Error{Code: "x", Permanent: true})
	gaveUp(w, "1 after 1 attempt, as no attempt will do (permanent)")
	w = newWorld(t, oneCall).over(to)
	w.hear(0, 1, "", bad("no"))
	w.hear(0, 2, "", bad("no"))
	gaveUp(w, "2 after 2 attempts, as its max_attempts is 2")
	to.MaxAttempts = 0
	w = newWorld(t, oneCall).over(to)
	w.hear(0, 1, "", bad("no"))
	w.pass(25 * time.Hour)
	w.hear(0, 2, "", bad("no"))
	gaveUp(w, "2 after 2 attempts, as its max_age of 24h0m0s was used up")
}

// What one call in a queue needs, no other may take away.
func TestDelivery08CallsInOneQueue(t *testing.T) {
	short, long := drover.Notify{Function: "f", MaxAge: drover.Duration(time.Minute)}, drover.Notify{Function: "f", MaxAge: drover.Duration(time.Hour)}
	t.Run("of two subscribers", func(t *testing.T) {
		w := newWorld(t, oneCall).over(short, long)
		w.next()
		w.wantEffects("list 0", "list 1")
		w.next()
		w.wantEffects("withdraw f r1/_outcome#0@1", "list 0 as dead")
		w.wantDeliveries("dead pending")
		w.next()
		w.wantEffects("withdraw f r1/_outcome#1@1", "list 1 as dead")
	})
	t.Run("of a node and a subscriber", func(t *testing.T) {
		w := newWorld(t, oneCall).begin(short)
		w.stop("")
		w.wantEffects("cancel a@1", "done", "deliver 0@1")
	})
}

// A receipt needs the token of its delivery, and a run that is over.
func TestDelivery02ReceiptsCannotBeForged(t *testing.T) {
	w := newWorld(t, oneCall).begin(drover.Notify{Subject: "a"}, drover.Notify{Subject: "b"})
	w.hears(0, drover.HeardMessage{Attempt: 1})
	w.wantRefused(drover.CodeConflict, "not over")
	w.ok("a@1", `1`)
	for _, token := range []string{"", "forged", Token("s3cret", "r1:terminal:1"), Token("s3cret", "r1:terminal"), Token("", "r1:terminal:0")} {
		w.send(&Command{Verb: drover.VerbHeard, Heard: &drover.HeardMessage{DeliveryID: "r1:terminal:0", Token: token, Attempt: 1}})
		w.wantRefused(drover.CodeForbidden, "token")
	}
	for _, id := range []string{"", "r1", "r1:terminal", "r1:terminal:2", "r1:terminal:-1", "r2:terminal:0", "r1:terminal:00", strings.Repeat("x", 5000)} {
		w.send(&Command{Verb: drover.VerbHeard, Heard: &drover.HeardMessage{DeliveryID: drover.DeliveryID(id), Token: "t", Attempt: 1}})
		w.wantRefused(drover.CodeNotFound)
	}
	w.wantDeliveries("pending pending")
}

// Why, status and lists never show what proves a session.
func TestDelivery02SealsAreNotShown(t *testing.T) {
	w := newWorld(t, oneCall).over(drover.Notify{Session: "user.a.b", Seal: "very secret", Template: "Done:"})
	d, ok := w.s.DeliveryOf(0)
	if !ok || d.Outcome != drover.StatusCompleted || d.Delivery.Notify.Session != "user.a.b" || !d.RunEnded.Equal(epoch) {
		t.Errorf("%s", show(d))
	}
	for _, shown := range []string{show(d), show(w.view()), show(Why(w.p, w.s))} {
		if strings.Contains(shown, "very secret") {
			t.Errorf("shown is %s", shown)
		}
	}
	if _, ok := w.s.DeliveryOf(1); ok {
		t.Error("there is no delivery 1")
	}
}
