package publish

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
)

// An account or a server that is full now has room later: the write is to be
// tried again, and is no mistake of whoever sent it.
func TestWhatIsFullIsUnavailable(t *testing.T) {
	for _, e := range []jetstream.APIError{
		{Code: 400, ErrorCode: 10002, Description: "resource limits exceeded for account"},
		{Code: 500, ErrorCode: 10028, Description: "insufficient memory resources available"},
		{Code: 500, ErrorCode: 10047, Description: "insufficient storage resources available"},
		{Code: 503, ErrorCode: 10023, Description: "insufficient resources"},
	} {
		var api *jetstream.APIError
		if err := apiError(&e); !errors.Is(err, drover.CodeUnavailable) || !errors.As(err, &api) || api.ErrorCode != e.ErrorCode {
			t.Errorf("%d: %v", e.ErrorCode, err)
		}
	}
	if err := apiError(&jetstream.APIError{Code: 400, ErrorCode: 10003, Description: "bad request"}); errors.Is(err, drover.CodeUnavailable) {
		t.Errorf("a bad request: %v", err)
	}
}
