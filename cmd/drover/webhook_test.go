package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A worker whose secrets cannot be read does not begin, or outcomes would wait
// and nobody would know why.
func TestDelivery14ABrokenFileOfSecretsIsToldAtTheStart(t *testing.T) {
	flow := filepath.Join(t.TempDir(), "flow.yaml")
	if err := os.WriteFile(flow, []byte("nodes: {a: {set: {with: 1}}}\noutput: {from: node:a}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	secrets := filepath.Join(t.TempDir(), "secrets.yaml")
	for text, want := range map[string]string{
		"default: nobodys-business": `secret 1 of "default"`,
		"":                          "cannot be read",
	} {
		_ = os.Remove(secrets)
		if text != "" {
			if err := os.WriteFile(secrets, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		status, _, stderr := run(t, flow, "--webhook-secrets", secrets)
		if status == 0 || !strings.Contains(stderr, want) || !strings.Contains(stderr, secrets) || strings.Contains(stderr, "business") {
			t.Errorf("exit status %d: %s", status, stderr)
		}
	}
	if err := os.WriteFile(secrets, []byte("default: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, stderr := run(t, flow, "--webhook-secrets", secrets); status != 0 {
		t.Errorf("exit status %d: %s", status, stderr)
	}
}
