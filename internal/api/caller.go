package api

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/nats-io/nats.go/micro"

	"github.com/droverhq/drover/subjects"
)

type callerKey struct{}

// caller is who asks, as far as it is known.
type caller struct {
	// Of requests from another account the server tells this, in a header that it
	// sets itself. user is known only where the import shares it.
	account, user string
	// imported: the request came from another account, for sure. Whoever asks in
	// the workers' own account may set that header to anything.
	imported bool
	// call and token are what a function says that it performs. They prove nothing
	// before they were compared with the record.
	call, token string
}

// withCaller keeps who asks. Requests of the workers' own account have no caller:
// whoever may send them there is trusted with all of its runs anyway.
func withCaller(ctx context.Context, req micro.Request) context.Context {
	headers := req.Headers()
	who := caller{call: headers.Get(subjects.HeaderCall), token: headers.Get(subjects.HeaderToken)}
	var info struct {
		Account string `json:"acc"`
		User    string `json:"user"`
	}
	if text := headers.Get(subjects.HeaderRequestInfo); text != "" && json.Unmarshal([]byte(text), &info) == nil {
		who.account, who.user, who.imported = info.Account, info.User, imported(req.Reply())
	}
	return context.WithValue(ctx, callerKey{}, who)
}

// imported reports whether a reply subject is one that the server has made for a
// request from another account. It lets no client ask with such a subject. One that
// came by a gateway stands behind three tokens of the server.
func imported(reply string) bool {
	const made, routed = "_R_.", "_GR_."
	if rest, ok := strings.CutPrefix(reply, routed); ok {
		if parts := strings.SplitN(rest, ".", 3); len(parts) == 3 {
			reply = parts[2]
		}
	}
	return strings.HasPrefix(reply, made)
}

// callerOf gives who asks.
func callerOf(ctx context.Context) caller {
	who, _ := ctx.Value(callerKey{}).(caller)
	return who
}

// scope tells the keys of any two callers apart; "" where it is not known who asks.
func (c caller) scope() string {
	if c.account == "" {
		return ""
	}
	// A JSON list tells any two pairs of names apart.
	text, err := json.Marshal([]string{c.account, c.user})
	if err != nil {
		return ""
	}
	return string(text)
}
