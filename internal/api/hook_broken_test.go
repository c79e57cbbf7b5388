package api_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/subjects"
)

// A key that somebody has overwritten must neither reach another token nor keep
// senders busy, and its error says how to be rid of it, which must work.
func TestAKeyThatHoldsNoClaimIsReleased(t *testing.T) {
	f := newFleet(t)
	f.put("one", one)
	js := natstest.JetStream(t, f.nc)
	for name, value := range map[string]string{
		"garbage": "\x00\xff", "empty": "", "null": "null", "object": "{}",
		"other": `{"token":"elsewhere","run":"gone","id":"gone/in"}`,
		"none":  `{"run":"gone","id":"gone/in"}`,
		"run":   `{"token":"run","run":"a.>","id":"a.>/in"}`,
	} {
		if _, err := js.Publish(t.Context(), subjects.BucketKey(subjects.Default().Hooks(), subjects.HookKey(name)), []byte(value)); err != nil {
			t.Fatal(err)
		}
		_, err := f.DeliverHook(t.Context(), drover.HookRequest{Token: name, Payload: json.RawMessage(`1`)})
		if !errors.Is(err, drover.CodeInternal) || !strings.Contains(err.Error(), "hook release") {
			t.Errorf("%s: a delivery ends with %v", name, err)
		}
		if h, err := f.ReleaseHook(t.Context(), drover.HookTokenRequest{Token: name}); err != nil || h.Token != name {
			t.Errorf("%s: released %+v, error %v", name, h, err)
		}
		run := drover.RunID("r-" + name)
		f.begin("one", run, name)
		if h := f.held(name); h.RunID != run {
			t.Errorf("%s: then the hook is %+v", name, h)
		}
	}
}

// Two tokens that are no UTF-8 would become the same one.
func TestRequestsAreUTF8(t *testing.T) {
	f := newFleet(t)
	for _, verb := range []string{"hook.deliver", "hook.show"} {
		m, err := f.nc.Request(subjects.Default().API(verb), []byte("{\"token\":\"\xff\"}"), patience)
		if err != nil {
			t.Fatal(err)
		}
		if code := m.Header.Get(subjects.HeaderCode); code != string(drover.CodeInvalidRequest) {
			t.Errorf("%s: code %q, %s", verb, code, m.Data)
		}
	}
}
