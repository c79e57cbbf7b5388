package function

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover/subjects"
)

// What anyone may publish is a call with an id that reads back, or none.
func FuzzParseCall(f *testing.F) {
	f.Add("run1/n#1@2", "token", "2026-01-02T15:04:05.5Z", "10s", "{}")
	f.Add("run1/n", "", "soon", "-1s", "")
	f.Fuzz(func(t *testing.T, id, token, deadline, heartbeat, body string) {
		m := nats.NewMsg("subject")
		m.Data = []byte(body)
		m.Header.Set(subjects.HeaderCall, id)
		m.Header.Set(subjects.HeaderToken, token)
		m.Header.Set(subjects.HeaderDeadline, deadline)
		m.Header.Set(subjects.HeaderHeartbeat, heartbeat)
		c, err := parseCall(m, "f", "here")
		if err != nil {
			return
		}
		if c.ID.String() != id || c.token == "" || c.Heartbeat < 0 || len(c.input) == 0 {
			t.Errorf("call %+v", c.Call)
		}
	})
}
