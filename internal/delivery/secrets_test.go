package delivery

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/webhook"
)

func secretsFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secrets.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// same reports whether secrets are exactly those.
func same(t *testing.T, got [][]byte, want ...string) bool {
	t.Helper()
	if len(got) != len(want) {
		return false
	}
	for i, text := range want {
		secret, err := webhook.ParseSecret(text)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got[i], secret) {
			return false
		}
	}
	return true
}

func TestOpenSecrets(t *testing.T) {
	s, err := OpenSecrets(secretsFile(t, "# of the shop\ndefault: "+secretOne+"\nbilling:\n  - "+secretTwo+"\n  - "+secretOne+"\n"), zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	if !same(t, s.Of("default"), secretOne) || !same(t, s.Of("billing"), secretTwo, secretOne) || s.Of("other") != nil {
		t.Errorf("got %d, %d and %d secrets", len(s.Of("default")), len(s.Of("billing")), len(s.Of("other")))
	}
	if (*Secrets)(nil).Of("default") != nil {
		t.Error("no secrets have one")
	}
	if s, err := OpenSecrets(secretsFile(t, `{"a": "`+secretOne+`"}`), zerolog.Nop()); err != nil || !same(t, s.Of("a"), secretOne) {
		t.Errorf("JSON: %v", err)
	}
	if s, err := OpenSecrets(secretsFile(t, ""), zerolog.Nop()); err != nil || s.Of("a") != nil {
		t.Errorf("an empty file: %v", err)
	}
	if _, err := OpenSecrets(filepath.Join(t.TempDir(), "none"), zerolog.Nop()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func TestDelivery14ErrorsOfTheFileShowNoSecret(t *testing.T) {
	const bad = "not-a-secret-but-nobodys-business"
	for what, tt := range map[string]struct{ text, says string }{
		"no base64":             {"default: whsec_" + bad, `secret 1 of "default"`},
		"no prefix":             {"default: [" + secretOne + ", " + bad + "]", `secret 2 of "default"`},
		"no text":               {"default: 1234567", "whsec_"},
		"an empty list":         {"default: []", `"default" has no secret`},
		"nothing":               {"default:", `secret 1 of "default"`},
		"a map":                 {"default: {a: " + secretOne + "}", `secret 1 of "default"`},
		"the secret as a name":  {secretOne + ": default", "put the name first"},
		"a list":                {"- " + secretOne, "is no YAML map"},
		"a text":                {bad, "is no YAML map"},
		"no YAML":               {"a: " + secretTwo + "\ndefault: \"" + secretOne + "\n", "is no YAML map"},
		"a name that is twice":  {"a: " + secretOne + "\na: " + secretTwo, "is no YAML map at line 2"},
		"a file that is large":  {strings.Repeat("# "+bad+"\n", 40_000), "more than"},
		"a name that is tagged": {"a: !!binary " + secretOne, ""},
	} {
		_, err := OpenSecrets(secretsFile(t, tt.text), zerolog.Nop())
		if !errors.Is(err, drover.CodeInvalidRequest) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", what, err)
			continue
		}
		for _, secret := range []string{secretOne[6:], secretTwo[6:], bad, "1234567"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the error shows a secret: %v", what, err)
			}
		}
	}
}

func TestDelivery01SecretsAreRotatedInTheFile(t *testing.T) {
	path, now, log := secretsFile(t, "default: "+secretOne), noon, &bytes.Buffer{}
	s, err := openSecrets(path, zerolog.New(log), func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, want ...string) {
		t.Helper()
		if !same(t, s.Of("default"), want...) {
			t.Errorf("%s: got %d secrets, and not those", what, len(s.Of("default")))
		}
	}
	write("default: [" + secretTwo + ", " + secretOne + "]")
	now = now.Add(lookEvery - 1)
	expect("within a second", secretOne)
	now = now.Add(1)
	expect("both", secretTwo, secretOne)
	for range 3 { // it is said once
		write("default: [" + secretOne + ", " + secretTwo[:20] + "]")
		now = now.Add(lookEvery)
		expect("a broken file", secretTwo, secretOne)
	}
	if got := strings.Count(log.String(), `"level":"error"`); got != 1 {
		t.Errorf("%d errors were logged: %s", got, log)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		now = now.Add(lookEvery)
		expect("no file", secretTwo, secretOne)
	}
	write("default: " + secretTwo)
	now = now.Add(lookEvery)
	expect("the new one alone", secretTwo)
	now = now.Add(-time.Hour) // a clock that was set back does not stop it
	write("default: " + secretOne)
	expect("back", secretOne)
	if got := strings.Count(log.String(), `"level":"error"`); got != 2 {
		t.Errorf("%d errors were logged: %s", got, log)
	}
	for _, secret := range []string{secretOne, secretTwo} {
		if strings.Contains(log.String(), secret[6:20]) {
			t.Errorf("the log has a secret: %s", log)
		}
	}
}

// A file that was changed in place is another one when its time or size is.
func TestSecretsChangeInPlace(t *testing.T) {
	path, now := secretsFile(t, "default: "+secretOne), noon
	s, err := openSecrets(path, zerolog.Nop(), func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	other := strings.ToUpper(secretOne[6:8]) + secretOne[8:]
	if err := os.WriteFile(path, []byte("default: whsec_"+other), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, noon, noon); err != nil {
		t.Fatal(err)
	}
	now = now.Add(lookEvery)
	if !same(t, s.Of("default"), "whsec_"+other) {
		t.Error("the secret is still the old one")
	}
}

func FuzzSecrets(f *testing.F) {
	for _, seed := range []string{"", "a: b", "a: [" + secretOne + "]", "a: &x b\nc: *x", "? a\n: b", "\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		byName, err := parseSecrets(text)
		if (byName == nil) == (err == nil) {
			t.Errorf("%v and %v", byName, err)
		}
		for name, secrets := range byName {
			if name == "" || len(secrets) == 0 {
				t.Errorf("%q has %d secrets", name, len(secrets))
			}
		}
	})
}
