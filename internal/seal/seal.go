// Package seal proves that Drover itself named the session that a run answers to.
//
// A start in the log says nothing of who sent it, and anyone who may publish
// there could name the session of another. So the worker that has seen who asks
// seals the session for that one run, with a secret that only the workers of the
// fleet have, and the worker that folds the start checks the seal.
//
// A seal is good for its run alone: who sees one can start nothing else with it.
package seal

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/droverhq/drover"
)

// Seal proves that a run may answer to a session: an HMAC-SHA256 of both, in
// hexadecimal. Neither has a line end in it.
func Seal(secret []byte, run drover.RunID, session string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(string(run) + "\n" + session))
	return hex.EncodeToString(mac.Sum(nil))
}

// Check reports whether a seal is that of a run and a session. Without a secret
// there is none that is.
func Check(secret []byte, run drover.RunID, session, seal string) bool {
	return len(secret) > 0 && hmac.Equal([]byte(Seal(secret, run, session)), []byte(seal))
}

// Admit says why the subscribers of a start may not be those of a run, or nil: a
// session needs its seal.
func Admit(secret []byte, run drover.RunID, start *drover.StartRequest) *drover.Error {
	for i := range start.Notify {
		if n := &start.Notify[i]; n.Session != "" && !Check(secret, run, n.Session, n.Seal) {
			return drover.Errorf(drover.CodeForbidden,
				"notify %d of run %s names a session without the seal of this fleet: ask the API to start the run, with reply_to", i, run)
		}
	}
	return nil
}

// Again gives subscribers with their sessions sealed for another run: for a
// successor, whose start comes from a worker. What it is given stays as it is.
func Again(secret []byte, run drover.RunID, notify drover.NotifyList) drover.NotifyList {
	sealed := slices.Clone(notify)
	for i := range sealed {
		if n := &sealed[i]; n.Session != "" {
			n.Seal = Seal(secret, run, n.Session)
		}
	}
	return sealed
}
