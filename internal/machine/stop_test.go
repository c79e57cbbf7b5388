package machine

import (
	"testing"
	"time"

	"github.com/droverhq/drover"
)

// A right to publish anything is a right to have the server answer anywhere.
func TestAnswersOfTheServerStopNothing(t *testing.T) {
	for body, want := range map[string]drover.Code{
		``: "", `{}`: "", `{"reason":"enough"}`: "", `{"reason":"enough","by":"ada"}`: "",
		`{"stream":"X","seq":4}`:                                    drover.CodeForbidden,
		`{"stream":"X","seq":4,"domain":"hub"}`:                     drover.CodeForbidden,
		`{"error":{"code":400,"err_code":10071},"seq":0}`:           drover.CodeForbidden,
		`{"type":"io.nats.jetstream.api.v1.account_info_response"}`: drover.CodeForbidden,
		`7`: drover.CodeInvalidRequest,
	} {
		_, _, err := DecodeCommand(1, time.Unix(1, 0), "r1", string(drover.VerbStop), []byte(body), "")
		if (err == nil) != (want == "") || err != nil && err.Code != want {
			t.Errorf("the stop %q gave %v, want %q", body, err, want)
		}
	}
}
