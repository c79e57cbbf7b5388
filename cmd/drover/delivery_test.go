package main

import (
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

func TestDelivery12CommandsAskTheFleet(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ended := time.Now().Add(-90 * time.Second)
	next := time.Now().Add(-time.Second)
	dead := drover.RunDelivery{
		Delivery: drover.Delivery{
			ID: "r_1:terminal:1", Notify: drover.Notify{URL: "https://shop.example/a\x1b[2J?key=secret"}, Status: drover.DeliveryDead, Attempts: 3,
			Since: &at, EndedAt: &at, LastError: drover.Errorf(drover.CodeFailed, "it said\x1b no"),
		},
		RunID: "r_1", Workflow: "naming", Outcome: drover.StatusFailed, RunEnded: at,
	}
	pending := drover.RunDelivery{
		Delivery: drover.Delivery{
			ID: "r_2:terminal:0", Notify: drover.Notify{Subject: "x.done"}, Status: drover.DeliveryPending, NextAt: &next,
			LastError: drover.Errorf(drover.CodeUnavailable, "nobody is there"),
		},
		RunID: "r_2", Outcome: drover.StatusCompleted, RunEnded: ended,
	}
	away := dead
	away.LastFailure = drover.Errorf(drover.CodeFailed, "no room")
	delivered := drover.RunDelivery{
		Delivery: drover.Delivery{ID: "r_3:terminal:0", Notify: drover.Notify{StreamSubject: "log.done"}, Status: drover.DeliveryDelivered, Attempts: 1, Receipt: "stream LOG seq 7"},
		RunID:    "r_3", Outcome: drover.StatusCompleted, RunEnded: at,
	}
	old := dead
	old.RunEnded = ended
	for _, c := range []asking{
		{
			name: "list", args: []string{"delivery", "list", "--status", "dead", "--run", "r_1", "--workflow", "w", "--to", "x.done", "--limit", "3"}, verb: "delivery.list",
			reply: drover.DeliveryList{Deliveries: []drover.RunDelivery{old, pending}, More: true},
			asked: `{"status":"dead","run_id":"r_1","workflow":"w","to":"x.done","limit":3}`,
			out: []string{
				"DELIVERY        TO                          STATUS   ATTEMPTS  FOR    NEXT  ERROR\n",
				"r_1:terminal:1  https://shop.example/a?[2J  dead     3         1m30s  -     failed: it said? no\n",
				"r_2:terminal:0  x.done                      pending  0         1m30s  now   unavailable: nobody is there\n", "there are more",
			},
		},
		{
			name: "list all as JSON", args: []string{"delivery", "list", "--json"}, verb: "delivery.list",
			reply: drover.DeliveryList{Deliveries: []drover.RunDelivery{}}, asked: `{"limit":100}`, out: []string{`{"deliveries":[]}` + "\n"},
		},
		{
			name: "show a dead one", args: []string{"delivery", "show", "r_1:terminal:1"}, verb: "delivery.show", asked: `{"delivery_id":"r_1:terminal:1"}`, reply: dead,
			out: []string{
				"delivery  r_1:terminal:1\nto        url https://shop.example/a?[2J\nrun       r_1, failed at 2026-01-02T03:04:05Z\nworkflow  naming\nstatus    dead\nattempts  3\n",
				"ended at  2026-01-02T03:04:05Z\nerror     failed: it said? no\n\nto try again: drover delivery replay r_1:terminal:1\n",
			},
		},
		{
			name: "show a delivered one", args: []string{"delivery", "show", "r_3:terminal:0"}, verb: "delivery.show", asked: `{"delivery_id":"r_3:terminal:0"}`, reply: delivered,
			out: []string{"to        stream subject log.done\n", "status    delivered\nattempts  1\nreceipt   stream LOG seq 7\n"},
		},
		{
			name: "show what was said before nobody was there", args: []string{"delivery", "show", "r_1:terminal:1"}, verb: "delivery.show", asked: `{"delivery_id":"r_1:terminal:1"}`, reply: away,
			out: []string{"error     failed: it said? no\nbefore    failed: no room\n"},
		},
		{
			name: "replay what matches nothing", args: []string{"delivery", "replay", "--to", "typo"}, verb: "delivery.replay", asked: `{"to":"typo"}`,
			reply: drover.ReplayReply{}, out: []string{"no delivery matches that is pending or dead: nothing is tried again\n"},
		},
		{
			name: "show none", args: []string{"delivery", "show", "r_3:terminal:9"}, verb: "delivery.show", asked: `{"delivery_id":"r_3:terminal:9"}`,
			reply: drover.Errorf(drover.CodeNotFound, "run r_3 has no delivery"), status: exitFailed, err: "run r_3 has no delivery",
		},
		{
			name: "replay", args: []string{"delivery", "replay", "r_1:terminal:1", "r_1:terminal:2"}, verb: "delivery.replay", asked: `{"delivery_id":"r_1:terminal:2"}`,
			reply: drover.ReplayReply{Matched: 1, Replayed: 1}, out: []string{"r_1:terminal:1 is tried again\nr_1:terminal:2 is tried again\n"},
		},
		{
			name: "replay what was delivered", args: []string{"delivery", "replay", "r_3:terminal:0"}, verb: "delivery.replay", asked: `{"delivery_id":"r_3:terminal:0"}`,
			reply: drover.ReplayReply{Matched: 1}, out: []string{"r_3:terminal:0 is neither pending nor dead: nothing is tried again\n"},
		},
		{
			name: "replay by filter", args: []string{"delivery", "replay", "--status", "dead", "--to", "x.done"}, verb: "delivery.replay", asked: `{"status":"dead","to":"x.done"}`,
			reply: drover.ReplayReply{Matched: 400, Replayed: 400}, out: []string{"400 of 400 deliveries tried again\n"},
		},
		{
			name: "some cannot be replayed", args: []string{"delivery", "replay", "--workflow", "w"}, verb: "delivery.replay", asked: `{"workflow":"w"}`,
			reply: drover.ReplayReply{Matched: 1, Errors: []*drover.Error{drover.Errorf(drover.CodeUnavailable, "no worker has answered")}},
			out:   []string{"0 of 1 delivery tried again\n"}, status: exitFailed, err: "no worker has answered",
		},
	} {
		t.Run(c.name, c.run)
	}
	for _, args := range []string{"show x", "show", "show r:terminal:0 x", "list x", "replay", "replay x", "replay r:terminal:0 --status dead", "replay r:terminal:0 r:terminal:-1"} {
		if status, _, err := cli(t, "", append([]string{"delivery"}, strings.Fields(args)...)...); status != exitUsage || err == "" {
			t.Errorf("%s: exit status %d, %q", args, status, err)
		}
	}
}

// A run that is over and was not heard says what helps.
func TestWhyOfAnOutcomeThatNobodyHeard(t *testing.T) {
	got := why(&drover.WhyReply{RunID: "r_1", Status: drover.StatusFailed, Reasons: []drover.Reason{
		{Waiting: "subscriber", On: "a b.done", Text: "subject a b.done was not told: it was given up"},
		{Waiting: "subscriber", On: "x.done", Text: "subject x.done was not told yet", Until: "2026-01-02T03:04:05Z"},
	}})
	want := "run r_1 is failed\n  subject a b.done was not told: it was given up\n    drover delivery replay --run r_1 --to 'a b.done'\n  subject x.done was not told yet\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
