package machine

import (
	"encoding/json"
	"testing"

	"github.com/droverhq/drover"
)

// A body that asks for a token that nobody can guess is told it at once, in the
// entry of the node, and it is the one that is claimed.
func TestPrograms04ABodyKnowsTheTokenThatIsMade(t *testing.T) {
	for name, step := range map[string]string{"hook": `{"wait":{"hook":true}}`, "approve": `{"wait":{"approve":"ship?"}}`} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, `program: order`)
			w.send(&Command{Verb: drover.VerbStart, Start: &Start{StartRequest: drover.StartRequest{}, Hash: w.p.Hash, Secret: "s"}})
			g := w.s.Program
			token := Token("s", w.s.driveID(1).String())
			got := w.send(&Command{Verb: drover.VerbRecord, Record: &drover.RecordRequest{
				Drive: g.Drive, Fence: 1, Token: token, Instance: "p",
				Records: []drover.Entry{{Kind: drover.EntryNode, ID: "ask", Step: json.RawMessage(step)}},
			}})
			reply, ok := got.Answer.(drover.RecordReply)
			if !ok || len(reply.New) != 1 {
				t.Fatalf("answer %+v, refused %v", got.Answer, got.Refused)
			}
			claimed := ""
			for _, e := range got.Effects {
				if e.Kind == EffectClaim {
					claimed = e.Claim.Token
				}
			}
			var told string
			if err := json.Unmarshal(reply.New[0].Output, &told); err != nil || told == "" || told != claimed {
				t.Errorf("the body is told %q (%v), and %q is claimed", told, err, claimed)
			}
		})
	}
}
