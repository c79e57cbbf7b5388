package dispatcher

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/droverhq/drover"
)

func TestEncode(t *testing.T) {
	failed := outcomeOf(drover.StatusFailed)
	failed.Error = drover.Errorf(drover.CodeNodesFailed, "node a failed")
	for _, tc := range []struct {
		outcome *drover.Outcome
		result  string
		want    string
	}{
		{outcomeOf(drover.StatusCompleted), `[ 1 ]`, `"status":"completed","result":[1],"error":null,`},
		{outcomeOf(drover.StatusCompleted), ``, `"status":"completed","result":null,"error":null,`},
		{failed, ``, `"status":"failed","result":null,"error":{"code":"nodes_failed","message":"node a failed"},`},
		{outcomeOf(drover.StatusCompleted), `{`, `"status":"completed","result":null,"error":{"code":"internal","message":"the result of run r1`},
		{failed, `{`, `"result":null,"error":{"code":"nodes_failed","message":"node a failed (the result of run r1`},
	} {
		got := string(Encode(tc.outcome, json.RawMessage(tc.result)))
		if !strings.Contains(got, tc.want) || !json.Valid([]byte(got)) {
			t.Errorf("%s\nwant\n%s", got, tc.want)
		}
		if again := string(Encode(tc.outcome, json.RawMessage(tc.result))); again != got {
			t.Errorf("twice:\n%s\n%s", got, again)
		}
	}
}
