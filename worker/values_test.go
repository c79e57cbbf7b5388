package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/subjects"
)

const echoes = `{"nodes":{
	"a":{"call":"echo","input":{"from":"run_input"}},
	"child":{"run":{"definition":{"nodes":{"b":{"call":"echo","input":{"from":"run_input"}}},"output":{"from":"node:b"}}},"input":{"from":"node:a"}}},
	"output":{"from":"node:child"}}`

// value makes a JSON string of so many bytes.
func value(char string, size int) json.RawMessage {
	return json.RawMessage(`"` + strings.Repeat(char, size-2) + `"`)
}

// A value passes through the input of a run, a call, its result, a child, the
// outcome and its delivery; or there is an error that says where it did not, and
// the run ends all the same.
func TestValuesOfEverySize(t *testing.T) {
	const mib = 1 << 20
	for _, tc := range []struct {
		payload, size int
		char          string
		code          drover.Code // of the run's error; "": it completes
	}{
		{8 * mib, drover.MaxInlineValue + 1, "x", ""},
		{8 * mib, drover.MaxInlineRun + 1, "x", ""},
		{8 * mib, drover.MaxValue, "x", ""},
		{8 * mib, drover.MaxValue, "<", ""},
		{mib, mib - 70<<10, "x", ""},
		{mib, mib - 70<<10, "<", ""},
		{mib, mib - 10<<10, "x", drover.CodeNodesFailed}, // a function may not give as much
		{mib, mib - 500, "x", drover.CodeNodesFailed},    // no call may carry as much
	} {
		t.Run(fmt.Sprintf("%d of %q with a payload of %d", tc.size, tc.char, tc.payload), func(t *testing.T) {
			s := natstest.New(t, natstest.With(func(o *server.Options) { o.MaxPayload = int32(tc.payload) }))
			begin(t, s, "one")
			serve(t, s, function.Raw("echo", func(_ context.Context, in json.RawMessage) (json.RawMessage, error) { return in, nil }))
			done, told := outcomes(t, s), make(chan *nats.Msg, 10)
			nc := s.Connect()
			if _, err := nc.Subscribe("told", func(m *nats.Msg) { _ = m.Respond(nil); told <- m }); err != nil {
				t.Fatal(err)
			}
			if err := nc.Flush(); err != nil {
				t.Fatal(err)
			}
			want := value(tc.char, tc.size)
			hash := register(t, s, echoes)
			body := fmt.Appendf(nil, `{"hash":%q,"notify":{"subject":"told"},"input":%s}`, hash, want)
			if _, err := s.JetStream().Publish(t.Context(), subjects.Default().In("r", drover.VerbStart), body); err != nil {
				t.Fatal(err)
			}
			o := ofRun(t, done, "r")
			var heard drover.Outcome
			if err := json.Unmarshal((<-told).Data, &heard); err != nil {
				t.Fatal(err)
			}
			if tc.code == "" {
				if o.Status != drover.StatusCompleted || string(o.Result) != string(want) || string(heard.Result) != string(want) {
					t.Errorf("status %s, error %v, a result of %d bytes, one of %d is told", o.Status, o.Error, len(o.Result), len(heard.Result))
				}
				return
			}
			if o.Status != drover.StatusFailed || o.Error == nil || o.Error.Code != tc.code || !strings.Contains(o.Error.Message, "reference") {
				t.Errorf("status %s, error %v", o.Status, o.Error)
			}
		})
	}
}

// ofRun waits for the outcome of one run; others may end as well.
func ofRun(t *testing.T, done <-chan drover.Outcome, run drover.RunID) drover.Outcome {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case o := <-done:
			if o.RunID == run {
				return o
			}
		case <-timeout:
			t.Fatalf("run %s did not end", run)
		}
	}
}

// register stores a definition, and gives its hash.
func register(t *testing.T, s *natstest.Server, definition string) drover.Hash {
	t.Helper()
	body, err := json.Marshal(drover.DefinitionRequest{Name: "w", Definition: json.RawMessage(definition)})
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.Connect().Request(subjects.Default().API("definition.put"), body, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var reply drover.DefinitionReply
	if err := json.Unmarshal(m.Data, &reply); err != nil || reply.Hash == "" {
		t.Fatalf("%s: %v", m.Data, err)
	}
	return reply.Hash
}

// A value that is too large is refused with its place, and the next command of
// the run is heard.
func TestAStartThatIsTooLargeIsADeadLetter(t *testing.T) {
	s := natstest.New(t)
	begin(t, s, "one")
	dead := make(chan *nats.Msg, 10)
	nc := s.Connect()
	if _, err := nc.ChanSubscribe(subjects.Default().DeadAll(), dead); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	publish(t, s.JetStream(), "r", drover.VerbStart, drover.StartRequest{Definition: json.RawMessage(echoes), Input: value("x", drover.MaxValue+1)})
	var letter drover.DeadLetter
	if err := json.Unmarshal((<-dead).Data, &letter); err != nil {
		t.Fatal(err)
	}
	if letter.RunID != "r" || letter.Error == nil || letter.Error.Code != drover.CodeTooLarge {
		t.Errorf("dead letter %+v: %v", letter, letter.Error)
	}
}

// What a run makes itself may not fit in a message of its server: the run ends,
// and its outcome says what could not be told.
func TestAnOutcomeThatIsTooLargeForItsServer(t *testing.T) {
	const mib = 1 << 20
	s := natstest.New(t, natstest.With(func(o *server.Options) { o.MaxPayload = mib }))
	begin(t, s, "one")
	done := outcomes(t, s)
	publish(t, s.JetStream(), "r", drover.VerbStart, drover.StartRequest{
		Definition: json.RawMessage(`{"nodes":{"s":{"set":{"with":"${{ repeat('x', 1048500) }}"}}},"output":{"from":"node:s"}}`),
	})
	if o := ofRun(t, done, "r"); o.Error == nil || o.Error.Code != drover.CodeTooLarge || !strings.Contains(o.Error.Message, "max_payload") {
		t.Errorf("status %s, error %v", o.Status, o.Error)
	}
}
