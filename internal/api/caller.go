package api

import (
	"context"
	"encoding/json"

	"github.com/nats-io/nats.go/micro"

	"github.com/droverhq/drover/subjects"
)

type callerKey struct{}

// withCaller keeps who asks. The server tells it of requests that come from
// another account, in a header that it sets itself. Requests of the workers' own
// account have no caller: whoever may send them there is trusted with all of
// its runs anyway.
func withCaller(ctx context.Context, headers micro.Headers) context.Context {
	var info struct {
		Account string `json:"acc"`
		User    string `json:"user"`
	}
	text := headers.Get(subjects.HeaderRequestInfo)
	if text == "" || json.Unmarshal([]byte(text), &info) != nil || info.Account == "" {
		return ctx
	}
	// A JSON list tells any two pairs of names apart.
	caller, err := json.Marshal([]string{info.Account, info.User})
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, callerKey{}, string(caller))
}

// callerOf gives who asks, or "".
func callerOf(ctx context.Context) string {
	caller, _ := ctx.Value(callerKey{}).(string)
	return caller
}
