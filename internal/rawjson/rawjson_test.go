package rawjson_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/droverhq/drover/internal/rawjson"
)

func TestEncode(t *testing.T) {
	type message struct {
		Payload json.RawMessage `json:"payload"`
	}
	for _, c := range []struct {
		value any
		want  string
	}{
		{"<a href='x'>&</a>", `"<a href='x'>&</a>"`},
		{message{json.RawMessage(`{"html": "<p>"}`)}, `{"payload":{"html":"<p>"}}`},
		{map[string]string{"<": ">"}, `{"<":">"}`},
		{"a\nb", `"a\nb"`},
		{"\u2028\xff", `"\u2028\ufffd"`},
		{nil, `null`},
	} {
		if got, err := rawjson.Encode(c.value); err != nil || string(got) != c.want {
			t.Errorf("%#v is %s, not %s; error %v", c.value, got, c.want, err)
		}
	}
	for _, bad := range []any{math.NaN(), message{json.RawMessage(`{`)}} {
		if got, err := rawjson.Encode(bad); err == nil || got != nil {
			t.Errorf("%v is %s", bad, got)
		}
	}
	if got := string(rawjson.AppendString([]byte("x:"), `<">`)); got != `x:"<\">"` {
		t.Errorf("appended: %s", got)
	}
}
