package integration_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
)

const callbacks = "examples/callbacks"

// toldSteps are the commands of the README of the callbacks in their order: how
// each begins, and what it says.
var toldSteps = []struct{ prefix, says string }{
	{"drover definition put", "parcel"},
	{"drover start", "parcel-1\n"},
	{"drover delivery list", "parcel-1:terminal:0  parcels.done  pending  0 "},
	{"go run", "kept parcel-1:terminal:0\n"},
	{"drover delivery show", "receipt   kept"},
	{"nats request", `"stream":`},
	{"nats request", `"stream":`},
	{"go run", "kept parcel-3:terminal:1\n"},
	{"drover start", "parcel-4\n"},
	{"go run", "kept parcel-4:terminal:1\n"},
	{"drover start", "parcel-5\n"},
	{"drover delivery show", "delivered"},
	{"npm ci", "added"},
	{"drover start", "parcel-6\n"},
	{"node", "kept parcel-6:terminal:1\n"},
	{"drover start", "parcel-7\n"},
	{"node", "kept parcel-7:terminal:1\n"},
	{"node", "kept parcel-2:terminal:0\n"},
	{"nats request", `"stream":`},
	{"node", `{"id":"wfreply_desk-1-parcel","text":"Your parcel:\n\nRun desk-1-parcel of workflow parcel ended with status completed.`},
	{"drover start", `"result": 27`},
	{"drover delivery show", "consumed"},
	{"drover start", "parcel-10\n"},
	{"go run", "refused parcel-10:terminal:1\n"},
	{"drover delivery list", "parcel-10:terminal:1  parcels.bills  dead    1"},
	{"drover delivery replay", "1 of 1 delivery tried again"},
	{"go run", "kept parcel-10:terminal:1\n"},
}

// before says which status a delivery has to be in before a command is run: a
// reader is not as fast as a test. Commands count from the one after the server.
var before = map[int]struct {
	id     drover.DeliveryID
	status drover.DeliveryStatus
	tried  int
}{
	2:  {"parcel-1:terminal:0", drover.DeliveryPending, 0},
	4:  {"parcel-1:terminal:0", drover.DeliveryDelivered, 1},
	11: {"parcel-5:terminal:1", drover.DeliveryDelivered, 1},
	24: {"parcel-10:terminal:1", drover.DeliveryDead, 1},
}

// TestDelivery01Callbacks does what the README of the example says, in a copy of
// the examples: subscribers of every kind, in Go and in Node.js, each away when
// the run ends, are told the outcome once.
func TestDelivery01Callbacks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "examples"), committed{os.DirFS("../examples")}); err != nil {
		t.Fatal(err)
	}
	program := builtCallbacks(t, dir)
	_, commands := shown(t, "callbacks")
	if len(commands) != len(toldSteps)+1 {
		t.Fatalf("the README has %d commands, and %d are known here:\n%s", len(commands), len(toldSteps)+1, strings.Join(commands, "\n"))
	}
	address, web := freeAddress(t), freeAddress(t)
	url := "nats://" + address
	run := func(line string) *process {
		line = strings.ReplaceAll(line, "127.0.0.1:8090", web)
		// What go run does, in one process, which a signal reaches.
		line = strings.ReplaceAll(line, "go run ./"+callbacks+" ", "'"+program+"' ")
		return command(t, dir, line, "DROVER_LISTEN="+address, "DROVER_DATA="+filepath.Join(dir, "data"),
			"DROVER_NATS="+url, "NATS_URL="+url, "DROVER_TIMEOUT="+patience.String())
	}
	run(commands[0]).line("drover is ready")
	f := connect(t, url)
	for i, step := range toldSteps {
		line := commands[i+1]
		if !strings.HasPrefix(line, step.prefix) {
			t.Fatalf("command %d of the README is %s, and should begin with %s", i+1, line, step.prefix)
		}
		if want, ok := before[i]; ok {
			f.isTold(want.id, want.status, want.tried)
		}
		status, stdout, stderr := run(line).wait()
		if status != 0 || !strings.Contains(stdout, step.says) || strings.Contains(stdout, `"code":`) && step.prefix == "nats request" {
			t.Fatalf("%s: exit status %d, %s%s", line, status, stdout, stderr)
		}
	}
	f.wantTold(filepath.Join(dir, callbacks))
}

// committed hides what trying the example by hand leaves.
type committed struct{ fs.FS }

// ReadDir leaves out packages of Node.js, and outcomes.
func (c committed) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(c.FS, name)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		return e.Name() == "node_modules" || strings.HasSuffix(e.Name(), ".jsonl")
	}), err
}

// isTold waits until a delivery is in a status, and wants that many attempts of it.
// It is in the list then, where it belongs there.
func (f *fleet) isTold(id drover.DeliveryID, status drover.DeliveryStatus, attempts int) {
	f.t.Helper()
	run, _, err := drover.ParseDeliveryID(string(id))
	if err != nil {
		f.t.Fatal(err)
	}
	until(f.t, "delivery "+string(id)+" to be "+string(status), func() bool {
		d, err := f.ShowDelivery(f.t.Context(), id)
		if err != nil && !errors.Is(err, drover.CodeConflict) && !errors.Is(err, drover.CodeNotFound) {
			f.t.Fatal(err)
		}
		if err != nil || d.Status != status || d.Attempts != attempts {
			return false
		}
		if status == drover.DeliveryDelivered {
			return true
		}
		list, err := f.ListDeliveries(f.t.Context(), drover.DeliveryListRequest{DeliveryFilter: drover.DeliveryFilter{RunID: run, Status: status}})
		return err == nil && slices.ContainsFunc(list.Deliveries, func(d drover.RunDelivery) bool { return d.ID == id })
	})
}

// wantTold looks at what the programs of the example have kept.
func (f *fleet) wantTold(dir string) {
	f.t.Helper()
	told := f.keptIn(filepath.Join(dir, "told.jsonl"))
	for id, o := range told {
		if o.RunID == "parcel-3" != (o.Status == drover.StatusFailed) || o.Workflow != "parcel" || o.EndedAt.IsZero() {
			f.t.Errorf("delivery 5: %s is %+v", id, o)
		}
	}
	for _, id := range []drover.DeliveryID{
		"parcel-1:terminal:0", "parcel-2:terminal:0", "parcel-2:terminal:1", "parcel-3:terminal:1",
		"parcel-4:terminal:1", "parcel-6:terminal:1", "parcel-7:terminal:1", "parcel-10:terminal:1",
	} {
		if told[id].Status == "" {
			f.t.Errorf("nobody was told %s", id)
		}
	}
	booked := f.keptIn(filepath.Join(dir, "booked.jsonl"))
	if o := booked["parcel-5:terminal:1"]; len(booked) != 1 || string(o.Result) != "15" {
		f.t.Errorf("the function was told %+v", booked)
	}
	if told["parcel-9:terminal:1"].Status != "" {
		f.t.Error("delivery 4: one was told what a waiter had taken")
	}
}

// keptIn reads a file of outcomes, which has each once.
func (f *fleet) keptIn(name string) map[drover.DeliveryID]drover.Outcome {
	f.t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		f.t.Fatal(err)
	}
	all := map[drover.DeliveryID]drover.Outcome{}
	for line := range strings.Lines(string(data)) {
		var o drover.Outcome
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			f.t.Fatalf("%s has %q: %v", name, line, err)
		}
		if all[o.DeliveryID].Status != "" {
			f.t.Errorf("%s has %s twice", name, o.DeliveryID)
		}
		all[o.DeliveryID] = o
	}
	return all
}

// The subscribers that the README of the project names are known as they stand
// there.
func TestDelivery01ReadmeNamesEveryKind(t *testing.T) {
	t.Parallel()
	_, blocks := readme(t)
	i := slices.IndexFunc(blocks["yaml"], func(b string) bool { return strings.HasPrefix(b, "notify:") })
	if i < 0 {
		t.Fatal("the README has no notify")
	}
	d, err := drover.ParseDefinition([]byte(blocks["yaml"][i] + "nodes: {a: {set: {with: 1}}}\noutput: {from: \"node:a\"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, n := range d.Notify {
		kinds = append(kinds, n.Kind())
	}
	if want := []string{"subject", "stream_subject", "url", "function"}; !slices.Equal(kinds, want) {
		t.Errorf("the README names %q, want %q", kinds, want)
	}
}

// The endpoints of the example, in Go and in Node.js, take what is signed with a
// secret of theirs, now, and nothing else.
func TestDelivery01EndpointsOfCallbacksVerify(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secrets := filepath.Join(dir, "secrets")
	const old, latest, other = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_c2Vjb25kIHNlY3JldCBvZiB0aGUgdGVzdHMuLi4u", "whsec_dGhlIG9uZSBvZiBub2JvZHkgdGhhdCBpcyBoZXJl"
	if err := os.WriteFile(secrets, []byte("default:\n  - "+latest+"\n  - "+old+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	program := builtCallbacks(t, dir)
	for name, line := range map[string]string{
		"Go":      "'" + program + "' -file go.jsonl -count 2 -secrets secrets url ADDRESS",
		"Node.js": "env FILE=node.jsonl node '" + filepath.Join(wd(t), "..", callbacks, "node/webhook.js") + "' ADDRESS secrets 2",
	} {
		t.Run(name, func(t *testing.T) {
			address := freeAddress(t)
			p := command(t, dir, strings.ReplaceAll(line, "ADDRESS", address))
			p.line("listening")
			now := time.Now()
			for i, c := range []struct {
				run    string
				at     time.Time
				secret []string
				sent   string // in place of what was signed
				status int
			}{
				{run: "a", at: now, secret: []string{other}, status: 401},
				{run: "a", at: now.Add(-time.Hour), secret: []string{old}, status: 401},
				{run: "a", at: now, secret: []string{old}, sent: "b", status: 401},
				{run: "a", at: now, secret: []string{old}, status: 200},
				{run: "a", at: now, secret: []string{latest}, status: 200}, // again
				{run: "b", at: now, secret: []string{other, latest}, status: 200},
			} {
				if got := signed(t, address, c.run, cmp.Or(c.sent, c.run), c.at, c.secret...); got != c.status {
					t.Errorf("request %d was answered %d, want %d", i, got, c.status)
				}
			}
			if status, stdout, stderr := p.wait(); status != 0 || strings.Count(stdout, "kept ") != 2 || strings.Count(stdout, "again ") != 1 {
				t.Errorf("exit status %d, %s%s", status, stdout, stderr)
			}
		})
	}
}

// signed sends the outcome of a run with the signature of that of another, or of
// the same, and gives the status of the answer.
func signed(t *testing.T, address, run, sent string, at time.Time, secrets ...string) int {
	t.Helper()
	body := func(run string) string {
		return `{"delivery_id":"` + run + `:terminal:0","run_id":"` + run + `","status":"completed","result":1.50}`
	}
	header, err := client.SignWebhook(drover.DeliveryIDOf(drover.RunID(run), 0), at, []byte(body(run)), secrets...)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/outcomes", strings.NewReader(body(sent)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header, req.Close = header, true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// builtCallbacks builds the example in Go.
func builtCallbacks(t *testing.T, dir string) string {
	t.Helper()
	program := filepath.Join(dir, "callbacks")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../"+callbacks).CombinedOutput(); err != nil {
		t.Fatalf("the example cannot be built: %v\n%s", err, out)
	}
	return program
}

func wd(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// The lock file must work on every machine, and have what plain-nats has.
func TestCallbacksLockFileIsThatOfPlainNATS(t *testing.T) {
	t.Parallel()
	var text [2]string
	for i, name := range []string{plainNATS, "../" + callbacks + "/node"} {
		data, err := os.ReadFile(filepath.Join(name, "package-lock.json"))
		if err != nil {
			t.Fatal(err)
		}
		text[i] = regexp.MustCompile(`"drover-[a-z-]+"`).ReplaceAllString(string(data), "")
	}
	if text[0] != text[1] {
		t.Error("the packages of the two examples differ: copy package-lock.json, and change the name")
	}
}
