package subjects

import (
	"strconv"
	"strings"
	"testing"

	"github.com/droverhq/drover"
)

func TestPrefixes(t *testing.T) {
	for prefix, ok := range map[string]bool{
		"": true, "drover": true, "a": true, "fleet_2": true, strings.Repeat("a", 32): true,
		"Drover": false, "2a": false, "_a": false, "a.b": false, "a-b": false, "a b": false, "é": false,
		strings.Repeat("a", 33): false,
	} {
		n, err := New(prefix)
		if (err == nil) != ok {
			t.Errorf("prefix %q: error %v, want ok=%v", prefix, err, ok)
		}
		if ok && prefix != "" && n.Prefix() != prefix {
			t.Errorf("prefix %q became %q", prefix, n.Prefix())
		}
	}
	if n, _ := New(""); n != Default() || n.Prefix() != "drover" {
		t.Errorf("no prefix is %q", n.Prefix())
	}
}

// The texts below are the protocol: clients in other languages spell them.
func TestSpelling(t *testing.T) {
	n := Default()
	call := drover.CallID{Run: "r1", Node: "plan", Item: drover.NoItem, Attempt: 2}
	item := drover.CallID{Run: "r1", Node: "é", Item: 7, Undo: true, Attempt: 1}
	for _, tc := range []struct{ got, want string }{
		{n.In("r1", drover.VerbStart), "drover.in.r1.start"},
		{n.InAll(), "drover.in.*.*"},
		{n.CommandTransform(64), "drover.cmd.{{partition(64,1)}}.{{wildcard(1)}}.{{wildcard(2)}}"},
		{n.CommandsOf(3), "drover.cmd.3.>"},
		{n.Timer("r1", 42), "drover.timer.r1.42"},
		{n.Call("r1", "llm.plan"), "drover.call.r1.llm.plan"},
		{n.CallsTo("llm.plan"), "drover.call.*.llm.plan"},
		{n.Consumer("llm.plan"), "fn_llm=plan"},
		{n.Cancel("r1", "llm.plan"), "drover.cancel.r1.llm.plan"},
		{n.CancelsTo("llm.plan"), "drover.cancel.*.llm.plan"},
		{n.Done("", "r1"), "drover.done._.r1"},
		{n.Done("naming", "r1"), "drover.done.naming.r1"},
		{n.DoneOf("r1"), "drover.done.*.r1"},
		{n.Dead(3, 9), "drover.dead.3.9"},
		{n.API("start"), "drover.api.start"},
		{n.Commands(), "DROVER"},
		{n.Calls(), "DROVER_CALLS"},
		{n.Outcomes(), "DROVER_DONE"},
		{n.DeadLetters(), "DROVER_DEAD"},
		{n.Streams(), "DROVER_STREAMS"},
		{n.Stream("r1", "log"), "drover.stream.r1.log"},
		{n.Stream("r1", "log of all"), "drover.stream.r1._bG9nIG9mIGFsbA"},
		{n.StreamsOf("r1"), "drover.stream.r1.*"},
		{BucketStream(n.Runs()), "KV_DROVER_RUNS"},
		{BucketKey(n.Runs(), RunKey(3, "r1")), "$KV.DROVER_RUNS.3.r1"},
		{OutputKey(call), "r1.node.plan.2"},
		{OutputKey(item), "r1.node._w6k.7.undo.1"},
		{HookKey("order/7"), "_b3JkZXIvNw"},
		{HookIDKey("order/7", "a"), "id.e5dd32db9e1ba3159d805c669a10b72b"},
	} {
		if tc.got != tc.want {
			t.Errorf("%q, want %q", tc.got, tc.want)
		}
	}
}

func TestStreamOf(t *testing.T) {
	n, _ := New("a")
	for subject, want := range map[string]string{
		n.In("r", drover.VerbStart): n.Commands(),
		n.Call("r", "f"):            n.Calls(),
		n.Done("", "r"):             n.Outcomes(),
		BucketKey(n.Runs(), "3.r"):  BucketStream(n.Runs()),
		BucketKey(n.Values(), "r"):  BucketStream(n.Values()),
		BucketKey(n.Fleet(), "x"):   "", // leases must not wait
		n.Timer("r", 1):             "", // nor may what the server sends later be of a batch
		n.Dead(1, 2):                "",
		n.Cancel("r", "f"):          "",
		Default().Call("r", "f"):    "", // another fleet
		"$KV.A_2_RUNS.3.r":          "",
		"aa.in.r.start":             "",
		"_INBOX.x":                  "",
		"":                          "",
	} {
		if got := n.StreamOf(subject); got != want {
			t.Errorf("%q is kept by %q, want %q", subject, got, want)
		}
	}
}

func TestParseCommand(t *testing.T) {
	for _, tc := range []struct {
		subject   string
		partition int
		run, verb string
		ok        bool
	}{
		{"drover.cmd.7.r1.start", 7, "r1", "start", true},
		{"drover.cmd.7.what ever.dance", 7, "what ever", "dance", true},
		{"drover.cmd.x.r1.start", 0, "", "", false},
		{"drover.cmd.7.r1", 0, "", "", false},
		{"drover.cmd.7.r1.start.now", 0, "", "", false},
		{"drover.in.r1.start", 0, "", "", false},
		{"other.cmd.7.r1.start", 0, "", "", false},
		{"", 0, "", "", false},
	} {
		partition, run, verb, ok := Default().ParseCommand(tc.subject)
		if ok != tc.ok || ok && (partition != tc.partition || run != tc.run || verb != tc.verb) {
			t.Errorf("%q: %d %q %q %v", tc.subject, partition, run, verb, ok)
		}
	}
}

func TestKeysAreReadBack(t *testing.T) {
	if run, ok := RunOfKey(RunKey(12, "r-1")); !ok || run != "r-1" {
		t.Errorf("run %q, %v", run, ok)
	}
	if id, ok := MemberOfKey(MemberKey("w_1")); !ok || id != "w_1" {
		t.Errorf("member %q, %v", id, ok)
	}
	if name, ok := NameOfKey(NameKey("naming")); !ok || name != "naming" {
		t.Errorf("name %q, %v", name, ok)
	}
	if n, ok := PartitionOfKey(PartitionKey(12)); !ok || n != 12 {
		t.Errorf("partition %d, %v", n, ok)
	}
	for _, key := range []string{"", SettingsKey(), "partition.", "partition.x", "partition.-1"} {
		if _, ok := PartitionOfKey(key); ok {
			t.Errorf("%q is read as a partition", key)
		}
		if _, ok := MemberOfKey(key); ok {
			t.Errorf("%q is read as a member", key)
		}
	}
}

func TestPartitionsAreEven(t *testing.T) {
	const runs, partitions = 64_000, 64
	var count [partitions]int
	for i := range runs {
		count[Partition(string(drover.KeyRunID("", strconv.Itoa(i))), partitions)]++
	}
	for n, c := range count {
		if c < runs/partitions*3/4 || c > runs/partitions*5/4 {
			t.Errorf("partition %d has %d of %d runs", n, c, runs)
		}
	}
}

// FuzzEncode: any text becomes one token, and comes back.
func FuzzEncode(f *testing.F) {
	for _, s := range []string{"", "plan", "_plan", "a.b", "é", "a b*>", "\xff\x00", "-", "order/7"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		token := Encode(s)
		if token == "" || strings.ContainsFunc(token, func(r rune) bool {
			return r > '~' || !strings.ContainsRune("-_", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
		}) {
			t.Fatalf("%q became %q, which is no token", s, token)
		}
		if back, ok := Decode(token); !ok || back != s {
			t.Fatalf("%q became %q, and that %q, %v", s, token, back, ok)
		}
	})
}

// FuzzDecode: what is read is what would be written, so that a text has one token.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{"plan", "_", "_w6k", "_w6l", "_cGxhbg", "_!", "a.b", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, token string) {
		if s, ok := Decode(token); ok && Encode(s) != token {
			t.Fatalf("%q is read as %q, whose token is %q", token, s, Encode(s))
		}
	})
}

// FuzzOutputKey: two calls never have one key.
func FuzzOutputKey(f *testing.F) {
	f.Add("r/a@1", "r/a@2")
	f.Add("r/a#1@1", "r/a/undo@1")
	f.Add("r/a#1/undo@1", "r/a#1@1")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, errX := drover.ParseCallID(a)
		y, errY := drover.ParseCallID(b)
		if errX != nil || errY != nil {
			return
		}
		if (OutputKey(x) == OutputKey(y)) != (x == y) {
			t.Fatalf("calls %v and %v have the keys %q and %q", x, y, OutputKey(x), OutputKey(y))
		}
		for _, reserved := range []string{InputKey(x.Run), ResultKey(x.Run)} {
			if OutputKey(x) == reserved {
				t.Fatalf("call %v has the key %q", x, reserved)
			}
		}
	})
}

// FuzzHookIDKey: two ids of tokens never have one key, nor that of a claim.
func FuzzHookIDKey(f *testing.F) {
	f.Add("a", "b", "ab", "")
	f.Add("order/7", "1", "order/7", "1")
	f.Add("1:a", "", "", "1:a")
	f.Fuzz(func(t *testing.T, token, id, token2, id2 string) {
		a, b := HookIDKey(token, id), HookIDKey(token2, id2)
		if (a == b) != (token == token2 && id == id2) {
			t.Fatalf("%q of %q has the key %q, and %q of %q the key %q", id, token, a, id2, token2, b)
		}
		if _, claim := TokenOfKey(a); claim {
			t.Fatalf("%q of %q has the key of a claim, %q", id, token, a)
		}
	})
}
