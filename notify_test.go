package drover_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

// Every reason why nobody can be told so.
func TestDelivery01SubscribersThatCannotBe(t *testing.T) {
	for _, c := range []struct{ notify, want string }{
		{`{}`, "in 0 ways"},
		{`{"subject":"a","url":"https://x"}`, "in 2 ways"},
		{`{"subject":"a","stream_subject":"b","url":"https://x","function":"f","session":"s"}`, "in 5 ways"},
		{`{"subject":"a b"}`, "spaces"},
		{`{"subject":"a\u0000"}`, "control"},
		{`{"subject":"a..b"}`, "single dots"},
		{`{"subject":".a"}`, "single dots"},
		{`{"subject":"a.*"}`, "wildcards"},
		{`{"subject":"a.>"}`, "wildcards"},
		{`{"subject":"$JS.API.STREAM.DELETE.X"}`, "the server's"},
		{`{"subject":"drover.in.r.stop"}`, "Drover's own"},
		{`{"subject":"` + strings.Repeat("s", 257) + `"}`, "at most 256 bytes"},
		{`{"stream_subject":"a.*"}`, "wildcards"},
		{`{"stream_subject":"drover.api.x"}`, "Drover's own"},
		{`{"stream_subject":"$KV.b.k"}`, "the server's"},
		{`{"url":"x"}`, "https://"},
		{`{"url":"ftp://x"}`, "https://"},
		{`{"url":"https:///path"}`, "https://"},
		{`{"url":"https://x\u007f"}`, "https://"},
		{`{"url":"https://` + strings.Repeat("x", 2048) + `"}`, "2048 bytes"},
		{`{"url":"https://me:hidden@x"}`, "user or password"},
		{`{"function":"_notify"}`, "does not begin with _"},
		{`{"function":"a..b"}`, "single dots"},
		{`{"session":"user.a.b"}`, "reply_to"},
		{`{"session":"` + strings.Repeat("s", 513) + `","seal":"x"}`, "512"},
		{`{"session":"s","seal":"` + strings.Repeat("x", 129) + `"}`, "128"},
		{`{"session":"s","seal":"x","template":"` + strings.Repeat("t", 4097) + `"}`, "4096"},
		{`{"subject":"a","template":"t"}`, "reply_to only"},
		{`{"subject":"a","seal":"x"}`, "reply_to only"},
		{`{"subject":"a","secret":"x"}`, "url only"},
		{`{"url":"https://x","secret":"` + strings.Repeat("s", 129) + `"}`, "128 bytes"},
		{`{"url":"https://x","batch":{"max":10}}`, "subject only"},
		{`{"subject":"a","batch":{}}`, "batch.max is 0"},
		{`{"subject":"a","batch":{"max":1}}`, "batch.max is 1"},
		{`{"subject":"a","batch":{"max":1001}}`, "from 2 to 1000"},
		{`{"subject":"a","batch":{"max":10,"wait":"61s"}}`, "at most 1m0s"},
		{`{"subject":"a","batch":{"max":10,"wait":"-1s"}}`, "batch.wait"},
		{`{"subject":"a","timeout":"301s"}`, "at most 5m0s"},
		{`{"subject":"a","timeout":"-1s"}`, "timeout is -1s"},
		{`{"function":"f","timeout":"1s"}`, "stays in the queue"},
		{`{"subject":"a","max_age":"31d"}`, "at most 720h0m0s"},
		{`{"subject":"a","max_age":"-1h"}`, "max_age is -1h"},
		{`{"subject":"a","max_attempts":-1}`, "must not be negative"},
	} {
		var n drover.Notify
		if err := json.Unmarshal([]byte(c.notify), &n); err != nil {
			t.Fatal(c.notify, err)
		}
		if why := n.Problem(); !strings.Contains(why, c.want) || strings.Contains(why, "hidden") || len(why) > 300 {
			t.Errorf("%.80s: %q, want %q", c.notify, why, c.want)
		}
	}
}

func TestDelivery01SubscribersThatCan(t *testing.T) {
	for _, c := range []struct{ notify, kind, to string }{
		{`{"subject":"a.b","batch":{"max":1000,"wait":"1m"},"timeout":"5m","max_age":"30d","max_attempts":1,"inline":true}`, "subject", "a.b"},
		{`{"stream_subject":"events.done"}`, "stream_subject", "events.done"},
		{`{"url":"https://x.test:8443/hook?token=hidden","secret":"billing"}`, "url", "https://x.test:8443/hook"},
		{`{"url":"http://x.test"}`, "url", "http://x.test/"},
		{`{"function":"audit.log","max_age":"1h"}`, "function", "audit.log"},
		{`{"session":"user.a.b","seal":"x","template":"Done:"}`, "session", "user.a.b"},
	} {
		var n drover.Notify
		if err := json.Unmarshal([]byte(c.notify), &n); err != nil {
			t.Fatal(c.notify, err)
		}
		if why := n.Problem(); why != "" || n.Kind() != c.kind || n.To() != c.to {
			t.Errorf("%s: %q, kind %s to %s", c.notify, why, n.Kind(), n.To())
		}
	}
}

// A URL may have secrets that whoever lists deliveries must not see.
func TestDelivery14SecretsOfAURLAreNotShown(t *testing.T) {
	for _, url := range []string{"https://me:hidden@x.test/a", "https://x.test?k=hidden", "https://me:hidden@x.test?k=hidden", "https://a@hidden@x.test/"} {
		n := drover.Notify{URL: url}
		if to := n.To(); strings.Contains(to, "hidden") || !strings.Contains(to, "x.test") {
			t.Errorf("%s is shown as %s", url, to)
		}
	}
}

func TestDefinitionsHaveSubscribers(t *testing.T) {
	hashes := map[drover.Hash]bool{}
	for _, text := range []string{
		`{"notify":{"subject":"a.b","timeout":"30s"},"nodes":{"a":{"call":"f"}},"output":{"from":"node:a"}}`,
		`{"notify":[{"timeout":"30s","subject":"a.b"}],"nodes":{"a":{"call":"f"}},"output":{"from":"node:a"}}`,
		"notify: {subject: a.b, timeout: 30s}\nnodes: {a: {call: f}}\noutput: {from: node:a}",
	} {
		d, err := drover.ParseDefinition([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Notify) != 1 || d.Notify[0].Subject != "a.b" || d.Notify[0].Timeout != drover.Duration(30*time.Second) {
			t.Errorf("%s: %+v", text, d.Notify)
		}
		_, hash, err := d.Canonical()
		if hashes[hash] = true; err != nil || len(hashes) > 1 {
			t.Errorf("what says the same has the hashes %v (%v)", hashes, err)
		}
		if err := d.Validate(); err != nil {
			t.Error(err)
		}
		d.Notify[0].Session, d.Notify[0].Seal = "user.a.b", "x"
		if problems := problemsOf(t, d.Validate()); len(problems) != 2 || problems[0].Place != "notify[0].seal" && problems[0].Place != "notify[0].session" {
			t.Errorf("a session is refused with %v", problems)
		}
	}
	many := strings.Repeat(`{"subject":"a"},`, drover.MaxSubscribers) + `{"subject":"a"}`
	_, err := drover.ParseDefinition([]byte(`{"notify":[` + many + `],"nodes":{"a":{"call":"f"}},"output":{"from":"node:a"}}`))
	if problems := problemsOf(t, err); len(problems) != 1 || !strings.Contains(problems[0].Message, "101 subscribers") {
		t.Errorf("%v", err)
	}
}

func TestDeliveryIDs(t *testing.T) {
	id := drover.DeliveryIDOf("r-1", 12)
	if run, n, err := drover.ParseDeliveryID(string(id)); err != nil || run != "r-1" || n != 12 || id != "r-1:terminal:12" {
		t.Errorf("%s is read as %s, %d, %v", id, run, n, err)
	}
	for _, bad := range []string{"", "r", "r:terminal", "r:terminal:", "r:terminal:-1", "r:terminal:01", "r:terminal:x", ":terminal:0", "a.b:terminal:0", "r:terminal:0:0", "r:terminal:99999999999999999999"} {
		if _, _, err := drover.ParseDeliveryID(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestReplyToIsAnObjectOrTrue(t *testing.T) {
	for text, want := range map[string]string{
		`{"workflow":"w","reply_to":true}`:                       `{}`,
		`{"workflow":"w","reply_to":{}}`:                         `{}`,
		`{"workflow":"w","reply_to":{"template":"Done:"}}`:       `{"template":"Done:"}`,
		`{"workflow":"w"}`:                                       `null`,
		`{"workflow":"w","reply_to":null}`:                       `null`,
		`{"workflow":"w","reply_to":{"inline":true,"user":"x"}}`: `{"inline":true}`, // who it is, the connection tells
	} {
		var r drover.StartRequest
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, _ := json.Marshal(r.ReplyTo); string(got) != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{`{"reply_to":false}`, `{"reply_to":"me"}`, `{"reply_to":[]}`} {
		var r drover.StartRequest
		if json.Unmarshal([]byte(text), &r) == nil {
			t.Errorf("%s was read as %+v", text, r.ReplyTo)
		}
	}
}
