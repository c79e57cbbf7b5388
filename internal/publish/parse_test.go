package publish

import (
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go"
)

func TestThePlainFormIsTheServersForm(t *testing.T) {
	_, nc, _ := open(t, Options{})
	m, err := nc.Request("s.x", nil, nats.DefaultTimeout)
	if err != nil {
		t.Fatal(err)
	}
	if a, ok := parsePlain(m.Data, ""); !ok || a.Stream != "S" || a.Sequence != 1 {
		t.Fatalf("%q is read as %+v, %v: every ack would take the slow way", m.Data, a, ok)
	}
}

// FuzzParsePlain holds the fast reader to the JSON decoder: what it reads, the
// decoder reads the same.
func FuzzParsePlain(f *testing.F) {
	for _, s := range []string{
		`{"stream":"S","seq":1}`, `{"stream":"S", "seq":18446744073709551615}`, `{"stream":"S","seq":01}`,
		`{"stream":"","seq":1}`, `{"stream":"a\"b","seq":1}`, `{"stream":"S","seq":1,"duplicate":true}`,
		`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 3"},"stream":"S","seq":0}`, `{}`, ``,
		`{"stream":"S","seq":}`, `{"stream":"S","seq":1}}`, "{\"stream\":\"\xff\",\"seq\":1}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, ok := parsePlain(data, "S")
		if !ok {
			return
		}
		var want answer
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatalf("%q was read, but is no JSON: %v", data, err)
		}
		if got.Stream != want.Stream || got.Sequence != want.Sequence || want.Duplicate || want.Error != nil {
			t.Fatalf("%q is read as %+v, but is %+v", data, got, want)
		}
	})
}
