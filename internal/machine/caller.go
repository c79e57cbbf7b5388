package machine

import (
	"crypto/hmac"

	"github.com/droverhq/drover"
)

// Called reports whether whoever shows a token performs a call of this run: the
// token is the one that came with the call, and the call is outstanding. p is the
// plan of the run.
func (s *State) Called(p *Plan, call drover.CallID, token string) bool {
	if call.Run != s.Run || !hmac.Equal([]byte(Token(s.Secret, call.String())), []byte(token)) {
		return false
	}
	if p = s.grown(p); p == nil || p.Hash != s.Hash || len(p.nodes) != len(s.Nodes) || s.Terminal() {
		return false
	}
	f := fold{p: p, s: s}
	return f.outstanding(&call, ActiveCall) >= 0
}
