package machine

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
)

var update = flag.Bool("update", false, "write what scripts give into their files")

// TestScripts plays the scripts in testdata. A script is a definition, then
// commands, each followed by what it did; blank lines stand between. Commands:
//
//	start <input>            start again with the same words is the same start
//	ok <call> <output>       error <call> <error>     beat <call>
//	child <call> <status> <result or error>
//	deliver <name> <payload> [id]
//	hook <token> <payload> [id]     ask <token> <payload>     deliver to a hook; the token may be @<node>
//	owned <node> <token>     taken <node> <token>     lost <node> <token>
//	stop [reason]            tick                     pass <duration>
//	heard <index> <attempt> <receipt or error>       unmade <index> <attempt> <error>
//	begin <start>            a start with all that it may have
//	hold <waiter> <duration> consume <waiter>         release <waiter>
//	replay [index]           told <index> <attempt> <output or error>
//	why                      show
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := playScript(t, string(data))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(data) {
				t.Errorf("%s gives now (go test -update writes it):\n%s", file, got)
			}
		})
	}
}

func playScript(t *testing.T, text string) string {
	blocks := strings.Split(strings.TrimRight(text, "\n"), "\n\n")
	w := newWorld(t, blocks[0])
	out := []string{blocks[0]}
	for _, block := range blocks[1:] {
		line, _, _ := strings.Cut(block, "\n")
		result := w.script(strings.TrimPrefix(line, "> "))
		out = append(out, strings.TrimRight("> "+strings.TrimPrefix(line, "> ")+"\n"+result, "\n"))
	}
	return strings.Join(out, "\n\n") + "\n"
}

func (w *world) script(line string) string {
	verb, rest, _ := strings.Cut(line, " ")
	first, second, _ := strings.Cut(rest, " ")
	switch verb {
	case "start":
		w.startAs(drover.StartRequest{Input: json.RawMessage(rest), Notify: drover.NotifyList{{Subject: "told.me"}}})
	case "ok":
		w.ok(first, second)
	case "error":
		w.fail(first, *failure(second))
	case "beat":
		w.beat(first)
	case "child":
		status, value, _ := strings.Cut(second, " ")
		if status == "completed" {
			w.child(first, drover.StatusCompleted, value, nil)
		} else {
			w.child(first, drover.Status(status), "", failure(value))
		}
	case "deliver":
		payload, id, _ := strings.Cut(second, " ")
		w.deliver(first, payload, id)
	case "hook":
		payload, id, _ := strings.Cut(second, " ")
		w.deliverHook(w.token(first), payload, id)
	case "ask":
		w.hookFrom(drover.DeliverRequest{Hook: w.token(first), Claim: 7, Payload: json.RawMessage(second), Respond: "inbox.1"})
	case "owned":
		w.owned(first, w.token(second))
	case "taken":
		w.taken(first, second, false)
	case "lost":
		w.taken(first, second, true)
	case "stop":
		w.stop(rest)
	case "tick":
		w.tick()
	case "pass":
		d, err := time.ParseDuration(first)
		if err != nil {
			w.t.Fatal(err)
		}
		w.pass(d).tick()
	case "heard":
		var index, attempt int
		if _, err := fmt.Sscan(rest, &index, &attempt); err != nil {
			w.t.Fatal(err)
		}
		_, said, _ := strings.Cut(second, " ")
		w.hear(index, attempt, said, failure(said))
	case "begin", "hold", "consume", "release", "replay", "unmade", "told":
		w.scriptDelivery(verb, first, second)
	case "why":
		return showWhy(Why(w.p, w.s))
	case "show":
		return showRun(w.view())
	default:
		w.t.Fatalf("%q is no command of a script", line)
	}
	return w.scriptStep()
}

// failure reads an error; nil: it is none.
func failure(text string) *drover.Error {
	var e drover.Error
	if json.Unmarshal([]byte(text), &e) != nil {
		return nil
	}
	return &e
}

// scriptDelivery is script for the commands that are about the outcome.
func (w *world) scriptDelivery(verb, first, second string) {
	attempt, said, _ := strings.Cut(second, " ")
	index, _ := strconv.Atoi(first)
	number, _ := strconv.Atoi(attempt)
	switch verb {
	case "begin":
		var r drover.StartRequest
		if err := json.Unmarshal([]byte(strings.TrimSpace(first+" "+second)), &r); err != nil {
			w.t.Fatal(err)
		}
		w.startAs(r)
	case "hold":
		d, err := time.ParseDuration(second)
		if err != nil {
			w.t.Fatal(err)
		}
		w.hold(first, d)
	case "consume":
		w.consume(first)
	case "release":
		w.release(first)
	case "replay":
		w.replay(first)
	case "unmade":
		w.hears(index, drover.HeardMessage{Attempt: number, Error: failure(said), Unmade: true})
	case "told":
		m := drover.ResultMessage{Error: failure(said)}
		if m.Error == nil {
			m.Output = json.RawMessage(said)
		}
		w.told(index, number, m)
	}
}

// scriptStep is what the last command did.
func (w *world) scriptStep() string {
	var b strings.Builder
	step := w.last
	if step.Refused != nil {
		return fmt.Sprintf("refused: %s: %s", step.Refused.Code, step.Refused.Message)
	}
	if step.Answer != nil {
		fmt.Fprintf(&b, "answer: %s\n", show(step.Answer))
	}
	if !step.Changed {
		return b.String() + "nothing changed"
	}
	fmt.Fprintf(&b, "%s:", w.s.Status)
	for i, n := range w.p.nodes {
		fmt.Fprintf(&b, " %s=%s", n.id, w.s.Nodes[i].Status.status())
	}
	if d := w.s.Deadline(); d > 0 {
		fmt.Fprintf(&b, ", next at +%s", d.Time().Sub(epoch))
	}
	b.WriteByte('\n')
	for _, put := range step.Puts {
		fmt.Fprintf(&b, "put %s (%d bytes)\n", put.Key, len(put.JSON))
	}
	for _, e := range step.Effects {
		b.WriteString(showEffect(e))
	}
	return b.String()
}

// showEffect is an effect with the value that it carries.
func showEffect(e Effect) string {
	text := effectName(e)
	switch {
	case e.Kind == EffectCall || e.Kind == EffectStart:
		text += " " + string(orNull(e.Value.JSON))
		if e.Value.Key != "" {
			text = effectName(e) + " value " + e.Value.Key
		}
	case e.Kind == EffectClaim:
		c := *e.Claim
		c.Proof = ""
		text += " " + show(c)
	case e.Kind == EffectRespond:
		text += " " + string(orNull(e.Value.JSON))
	case e.Kind == EffectHandOver:
		text += " " + show(e.Start) + " " + string(orNull(e.Value.JSON))
		for _, d := range e.Deliveries {
			text += fmt.Sprintf("\n  %s to %s: %s", d.ID, d.Token, orNull(d.Payload.JSON))
		}
	case e.Kind == EffectDone || e.Kind == EffectTell:
		text += " " + string(orNull(e.Value.JSON))
		if e.Outcome != nil && e.Outcome.Error != nil {
			text += " " + e.Outcome.Error.Error()
		}
		if e.Outcome != nil && e.Outcome.Unread > 0 {
			text += fmt.Sprintf(" (%d unread)", e.Outcome.Unread)
		}
	}
	return text + "\n"
}

func showWhy(list []drover.Reason) string {
	var b strings.Builder
	for _, r := range list {
		fmt.Fprintf(&b, "%s: %s\n", r.Waiting, r.Text)
	}
	return b.String()
}

func showRun(r drover.Run) string {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(data)
}
