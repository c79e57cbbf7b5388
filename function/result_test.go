package function

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/droverhq/drover"
)

// The message of a result is spelled by hand; the encoder of the library says
// what it must be.
func TestResultsAreSpelledLikeTheEncoderDoes(t *testing.T) {
	id := drover.CallID{Run: "r1", Node: "a-b_1", Item: 3, Attempt: 2}
	bad := drover.Errorf(drover.CodeFailed, "no")
	for name, result := range map[string]drover.ResultMessage{
		"number":   {Output: json.RawMessage("1")},
		"spaces":   {Output: json.RawMessage("{ \"a\" :\n[1, \"x y\"] }")},
		"markup":   {Output: json.RawMessage(`"<&> é \u2028 "`)},
		"nothing":  {},
		"error":    {Error: bad},
		"progress": {Progress: json.RawMessage(`{"done":1}`)},
	} {
		for _, text := range []string{"abc0", "", `q"\`, "é", "a\nb", "<&>"} {
			c := &call{Call: Call{ID: id, Instance: text, Function: "f"}, token: text}
			got, err := encodeResult(c, result)
			if err != nil {
				t.Fatalf("%s, %q: %v", name, text, err)
			}
			want := result
			want.Call, want.Token, want.Instance = id, text, text
			if data, err := encode("f", want); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s, %q: %s, want %s, error %v", name, text, got, data, err)
			}
			var back drover.ResultMessage
			if err := json.Unmarshal(got, &back); err != nil || !reflect.DeepEqual(back.Call, id) || back.Token != text {
				t.Errorf("%s, %q: read back as %+v, error %v", name, text, back, err)
			}
		}
	}
	if _, err := encodeResult(&call{Call: Call{ID: id}}, drover.ResultMessage{Output: json.RawMessage("{")}); err == nil {
		t.Error("an output that is no JSON was spelled")
	}
}
