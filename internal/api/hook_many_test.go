package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

// claimed starts runs that claim a token each, and waits until all have.
func (f *fleet) claimed(tokens ...string) {
	f.t.Helper()
	var starting sync.WaitGroup
	slots := make(chan struct{}, 64)
	for i, token := range tokens {
		slots <- struct{}{}
		starting.Go(func() {
			defer func() { <-slots }()
			f.begin("one", drover.RunID(fmt.Sprint("many", i)), token)
			f.held(token)
		})
	}
	starting.Wait()
}

// many delivers to many hooks, in one answer.
func (f *fleet) many(request string) (drover.HookManyReply, error) {
	f.t.Helper()
	m, err := f.nc.Request(subjects.Default().API("hook.deliver.many"), []byte(request), patience)
	if err != nil {
		f.t.Fatal(err)
	}
	var reply drover.HookManyReply
	if e := drover.ErrorOf(m.Header.Get(subjects.HeaderCode), m.Data); e != nil {
		return reply, e
	}
	return reply, json.Unmarshal(m.Data, &reply)
}

func TestHooks20DeliverByTagAndPrefix(t *testing.T) {
	f := newFleet(t)
	f.put("one", one)
	f.put("held", "nodes: {in: {wait: {hook: keep, hold: true, tags: {half: '1'}}}, end: {wait: {name: end}, depends_on: [in]}}\noutput: {from: node:end}")
	f.claimed("a", "bb", "ccc", "a.*", "a b")
	f.begin("held", "r1", nil)
	f.held("keep")
	for _, bad := range []string{`{}`, `{"payload":1}`, `{"prefix":"a","payload":` + strings.Repeat("[", 100_000) + `}`, `{"run_id":"a.b"}`} {
		if _, err := f.many(bad); err == nil || errors.Is(err, drover.CodeInternal) {
			t.Errorf("%.40s: %v", bad, err)
		}
	}
	reply, err := f.many(`{"tags":{"half":"7"}}`)
	if err != nil || reply.Matched != 0 || reply.Failed != 0 {
		t.Errorf("reply %+v, error %v", reply, err)
	}
	// One payload does not fit the schema of some.
	reply, err = f.many(`{"tags":{"half":"1"},"payload":true,"id":"bad"}`)
	if err != nil || reply.Matched != 5 || reply.Accepted != 1 || reply.Failed != 4 || len(reply.Results) != 5 {
		t.Fatalf("reply %+v, error %v", reply, err)
	}
	for i, want := range []string{"a", "a b", "a.*", "ccc", "keep"} {
		if r := reply.Results[i]; r.Token != want || (r.Error == nil) != (want == "keep") {
			t.Errorf("result %d: %+v", i, r)
		}
	}
	reply, err = f.many(`{"tags":{"half":"1"},"prefix":"a","payload":7,"id":"x"}`)
	if err != nil || reply.Matched != 3 || reply.Accepted != 3 {
		t.Errorf("reply %+v, error %v", reply, err)
	}
	for _, run := range []drover.RunID{"many0", "many3", "many4"} {
		if o := f.over(run, drover.StatusCompleted); string(o.Result) != "7" {
			t.Errorf("run %s: %s", run, o.Result)
		}
	}
	// Again, once their hooks are gone, which is after their runs ended: the one
	// that is left has no such prefix.
	for _, token := range []string{"a", "a b", "a.*"} {
		f.free(token)
	}
	if reply, err = f.many(`{"tags":{"half":"1"},"prefix":"a","payload":7,"id":"x"}`); err != nil || reply.Matched != 0 {
		t.Errorf("reply %+v, error %v", reply, err)
	}
	for range 2 {
		if reply, err = f.many(`{"run_id":"r1","payload":8,"id":"y"}`); err != nil || reply.Matched != 1 || reply.Accepted != 1 {
			t.Errorf("reply %+v, error %v", reply, err)
		}
	}
	if !reply.Results[0].Repeat {
		t.Errorf("results %+v", reply.Results)
	}
}

func TestHooks21ManyHooksAreOneStream(t *testing.T) {
	f := newFleet(t)
	f.put("one", one)
	const hooks = 600
	var tokens []string
	for i := range hooks {
		tokens = append(tokens, fmt.Sprintf("job:%04d", i))
	}
	f.claimed(tokens...)
	list, err := f.ListHooks(t.Context(), drover.HookListRequest{HookFilter: drover.HookFilter{Prefix: "job:"}, Limit: 20})
	if err != nil || !list.More || len(list.Hooks) != 20 || list.Hooks[0].Token != tokens[0] || list.Hooks[19].Token != tokens[19] {
		t.Errorf("list %+v, error %v", list, err)
	}
	got := map[string]bool{}
	for r, err := range f.DeliverHooks(t.Context(), drover.HookManyRequest{HookFilter: drover.HookFilter{Prefix: "job:"}, Payload: raw("go")}) {
		if err != nil || r.Error != nil || got[r.Token] {
			t.Fatalf("result %+v, error %v", r, err)
		}
		got[r.Token] = true
	}
	if len(got) != hooks {
		t.Errorf("%d results", len(got))
	}
	for i := range hooks {
		f.over(drover.RunID(fmt.Sprint("many", i)), drover.StatusCompleted)
	}
}

// What docs/protocol.md tells people to type about hooks works as it stands.
func TestTheProtocolsHookCommands(t *testing.T) {
	doc, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n## Hooks\n")
	section, _, _ = strings.Cut(section, "\n## ")
	commands := regexp.MustCompile(`(?m)^nats request (?:--no-templates )?(\S+) '(.*)'`).FindAllStringSubmatch(section, -1)
	says := []string{
		`"hash":`, `"seq":`, `"customer":"kim"`, `"run_id":"order-17"`, `{"amount":12}`, `"started":true`, `"seq":`, `"hooks":[`, `"failed":0`,
	}
	if len(commands) != len(says) {
		t.Fatalf("%d commands, and %d are known here", len(commands), len(says))
	}
	f := newFleet(t)
	for i, c := range commands {
		if strings.Contains(c[1], "hook.list") {
			f.held("order:19")
		}
		ok := false
		for !ok {
			m, err := f.nc.Request(c[1], []byte(c[2]), patience)
			if err != nil {
				t.Fatal(err)
			}
			ok = strings.Contains(string(m.Data), says[i])
			// The start and the claim take a moment.
			if !ok && !strings.Contains(string(m.Data), `"code":"not_found"`) && !strings.Contains(string(m.Data), `"output":null`) {
				t.Fatalf("%s %s: %s", c[1], c[2], m.Data)
			}
		}
	}
}
