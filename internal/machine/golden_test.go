package machine

import (
	"encoding/json"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

var golden = flag.Bool("golden", false, "write the golden records of this schema version")

// readGolden reads a record. Those of earlier versions are never written again:
// there is no binary any more that would.
func readGolden(t *testing.T, file string) *State {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if s.V != Version {
		t.Fatalf("%s was read as version %d", file, s.V)
	}
	return s
}

// writeGolden writes the record of a world where that is asked for.
func writeGolden(t *testing.T, file string, w *world) {
	t.Helper()
	if *golden {
		if err := os.WriteFile(file, w.record, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGoldenRecord reads records that the first schema version wrote. They must
// be read for ever.
func TestGoldenRecord(t *testing.T) {
	s := readGolden(t, "testdata/record-v1.json")
	it := s.Nodes[0].Items
	if s.Run != "r1" || len(s.Active) != 2 || s.Active[1].Item != 2 || it.Total != 3 || string(it.output(1)) != `{"x":1}` ||
		s.Notify[0].Notify.Subject != "a.b" || s.Notify[0].Status != drover.DeliveryNone || s.Tags["k"] != "v" || len(s.Owed) != 0 || s.Input.JSON == nil {
		t.Fatalf("%+v", s)
	}
	hooks := readGolden(t, "testdata/record-v1-hooks.json")
	h := hooks.Hooks
	if len(h) != 3 || h[0] != (Hook{Token: "t", Node: 1, Mark: HookOwned, Brought: true, Since: h[0].Since, Read: 1}) || h[1].Node != 0 || h[2].Mark != HookClaiming ||
		len(hooks.Unread) != 1 || hooks.Unread[0].Hook != "t" || hooks.Unread[0].Respond != "inbox.1" || len(hooks.Seen) != 1 {
		t.Fatalf("%+v", hooks)
	}
	if _, err := Decode([]byte(`{"V":99,"run":"r","n":[{}]}`)); err == nil {
		t.Fatal("a record of a later version was read")
	}
}

// A run that was over under the first version told its subscribers by a queue
// that is gone: what was queued may be lost, and is tried again.
func TestDeliveriesOfTheFirstVersionGoOn(t *testing.T) {
	w := newWorld(t, oneCall).over(drover.Notify{Subject: "a"}, drover.Notify{Subject: "b"}, drover.Notify{Subject: "c"})
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(w.record, &fields); err != nil {
		t.Fatal(err)
	}
	fields["V"], fields["owe"] = raw(`1`), raw(`null`)
	fields["sub"] = raw(`[{"n":{"subject":"a"},"a":2,"d":true,"r":"ok"},{"n":{"subject":"b"},"a":1},{"n":{"subject":"c"},"a":1,"t":1893456060000,"x":{"code":"x","message":"away"}}]`)
	record, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	w.s, w.record = w.decode(record), w.encode(w.decode(record))
	if err := w.s.Check(w.p); err != nil {
		t.Fatal(err)
	}
	w.wantDeliveries("delivered@2 pending@1 pending@1")
	w.pass(time.Second).tick()
	w.wantEffects("deliver 1@2")
	w.pass(time.Minute).tick()
	w.wantEffects("deliver 1@2", "deliver 2@2")
	w.hear(0, 3, "", bad("late"))
	w.wantDeliveries("delivered@2 pending@1 pending@1")
}

// deliveriesOver is a run whose outcome was taken by one who waited, delivered,
// tried in vain, and given up.
func deliveriesOver(t *testing.T) *world {
	w := newWorld(t, oneCall)
	w.startAs(drover.StartRequest{
		Hold: &drover.HoldRequest{Waiter: "ann"},
		Notify: drover.NotifyList{
			{URL: "https://x.test/a", Secret: "s", Inline: true},
			{Subject: "a.b", Batch: &drover.Batch{Max: 5}},
			{StreamSubject: "c.d", MaxAge: drover.Duration(time.Hour)},
			{Function: "f", MaxAttempts: 1},
		},
	})
	w.ok("a@1", `1`)
	w.consume("ann")
	w.hear(1, 1, "thanks", nil)
	w.hear(2, 1, "", bad("away"))
	w.told(3, 1, drover.ResultMessage{Error: bad("no")})
	w.wantDeliveries("consumed delivered@1 pending@1 dead@1")
	return w
}

// deliveriesHeld is one whose outcome two wait for.
func deliveriesHeld(t *testing.T) *world {
	w := newWorld(t, oneCall).begin(drover.Notify{Session: "user.a.b", Seal: "x", Template: "hello", Inline: true}, drover.Notify{Function: "f"})
	w.hold("ann", time.Minute)
	w.hold("bob", 2*time.Minute)
	w.ok("a@1", `1`)
	w.wantDeliveries("held pending")
	w.s.Notify[1].Next = w.s.Notify[1].ends() // as it was before calls that nobody answers were listed
	w.record = w.encode(w.s)
	return w
}

// TestGoldenRecordOfDeliveries reads records that the second and the third version
// wrote: all that a delivery may be, and what comes next of it.
func TestGoldenRecordOfDeliveries(t *testing.T) {
	ended, held := deliveriesOver(t), deliveriesHeld(t)
	writeGolden(t, "testdata/record-v3.json", ended)
	writeGolden(t, "testdata/record-v3-held.json", held)
	for _, version := range []string{"v2", "v3"} {
		t.Run(version, func(t *testing.T) {
			ended, held := deliveriesOver(t), deliveriesHeld(t)
			ended.s = readGolden(t, "testdata/record-"+version+".json")
			if got := ended.encode(ended.s); string(got) != string(ended.record) {
				t.Errorf("the record is now\n%s\nand was\n%s", ended.record, got)
			}
			if ended.s.Taker != "ann" {
				t.Errorf("%+v", ended.s)
			}
			ended.next()
			ended.wantEffects("deliver 2@2")

			held.s = readGolden(t, "testdata/record-"+version+"-held.json")
			if got := held.encode(held.s); string(got) != string(held.record) {
				t.Errorf("the record is now\n%s\nand was\n%s", held.record, got)
			}
			held.consume("bob")
			held.wantDeliveries("consumed pending")
		})
	}
}
