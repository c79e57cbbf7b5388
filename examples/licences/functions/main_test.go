package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
)

// shell performs a function of functions.sh, and reads what it gives into out.
func shell(t *testing.T, name string, in, out any) error {
	t.Helper()
	input, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "./functions.sh", name)
	cmd.Dir = ".."
	cmd.Stdin = bytes.NewReader(input)
	raw, err := cmd.Output()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, out); err != nil {
		t.Fatalf("%s gave %s, which is no JSON: %v", name, raw, err)
	}
	return nil
}

func must[T any](t *testing.T, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func same(t *testing.T, name string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s in Go gives %v\nas a command %v", name, got, want)
	}
}

// The functions stand here twice, in Go and as commands: whoever changes one
// changes the other.
func TestFunctionsAndCommandsAgree(t *testing.T) {
	texts, err := filepath.Abs("../texts")
	if err != nil {
		t.Fatal(err)
	}
	var listed listing
	must(t, 0, shell(t, "list", folder{texts}, &listed))
	files, err := list(t.Context(), &folder{texts})
	same(t, "list", must(t, files, err), listed)
	if len(listed.Files) < 3 {
		t.Fatalf("listed %v, there are three texts", listed.Files)
	}

	var all []counted
	for _, name := range listed.Files {
		path := filepath.Join(listed.Folder, name)
		var words counted
		must(t, 0, shell(t, "count", path, &words))
		n, err := count(t.Context(), path)
		same(t, "count of "+name, must(t, n, err), words)
		all = append(all, n)
	}

	var best summary
	must(t, 0, shell(t, "top", all, &best))
	sum, err := top(t.Context(), all)
	same(t, "top", must(t, sum, err), best)
	if best.MostCommon[0].Word != "the" || best.AllWords < 100 {
		t.Errorf("the most common word of %d is %v", best.AllWords, best.MostCommon[0])
	}

	must(t, 0, shell(t, "top", []counted{}, &best))
	sum, err = top(t.Context(), []counted{})
	same(t, "top of nothing", must(t, sum, err), best)
}

func TestWhatIsNotThereIsTheFaultOfTheInput(t *testing.T) {
	const badInput = 65
	for name, in := range map[string]any{"list": folder{"/nowhere"}, "count": "/nowhere/at.all"} {
		var exit *exec.ExitError
		if err := shell(t, name, in, nil); !errors.As(err, &exit) || exit.ExitCode() != badInput {
			t.Errorf("%s gave %v, want exit status %d", name, err, badInput)
		}
	}
	if _, err := list(t.Context(), &folder{"/nowhere"}); err == nil {
		t.Error("a folder that is not there was listed")
	}
	if _, err := count(t.Context(), "/nowhere/at.all"); err == nil {
		t.Error("a text that is not there was counted")
	}
}
