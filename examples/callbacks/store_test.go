package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/droverhq/drover"
)

func opened(t *testing.T, file string) *store {
	t.Helper()
	s, err := openStore(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.close() })
	return s
}

func outcome(id string) json.RawMessage {
	return json.RawMessage(`{"delivery_id": "` + id + `", "run_id": "r", "status": "completed"}`)
}

func TestDelivery08EachOfABatchIsKeptOnceAndHasItsReceipt(t *testing.T) {
	s := opened(t, filepath.Join(t.TempDir(), "told"))
	ended := false
	s.left, s.enough = 2, func() { ended = true }
	s.keep(outcome("r:terminal:0"))
	if ended {
		t.Error("one was enough of two")
	}
	receipts := s.keep(outcome("r:terminal:0"), json.RawMessage("no outcome"), outcome("r:terminal:1"), outcome("r:terminal:1"))
	for i, want := range []string{"kept before", "", "kept", "kept before"} {
		if receipts[i].Receipt != want || (receipts[i].Error == nil) != (want != "") {
			t.Errorf("receipt %d is %+v, want %q", i, receipts[i], want)
		}
	}
	if !ended {
		t.Error("two were not enough")
	}
}

func TestDelivery07WhatWasKeptBeforeACrashIsNotKeptAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "told")
	s := opened(t, file)
	s.keep(outcome("r:terminal:0"), outcome("r:terminal:1"))
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, whole[:len(whole)-3], 0o600); err != nil { // cut off within the second
		t.Fatal(err)
	}
	s = opened(t, file)
	for id, want := range map[string]string{"r:terminal:0": "kept before", "r:terminal:1": "kept"} {
		if got := s.keep(outcome(id))[0]; got.Receipt != want {
			t.Errorf("the receipt of %s is %+v, want %q", id, got, want)
		}
	}
	if again, err := os.ReadFile(file); err != nil || string(again) != string(whole) {
		t.Errorf("the file has\n%s%v, and had\n%s", again, err, whole)
	}
}

func TestADiskThatFailsGivesNoReceipt(t *testing.T) {
	s := opened(t, filepath.Join(t.TempDir(), "told"))
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second is not taken for a repeat
		if got := s.keep(outcome("r:terminal:0"))[0]; got.Error == nil || got.Receipt != "" || got.Error.Permanent {
			t.Errorf("the receipt is %+v", got)
		}
	}
}

func TestDelivery12ARefusalIsPermanent(t *testing.T) {
	s := opened(t, filepath.Join(t.TempDir(), "told"))
	s.refuse = true
	if got := s.keep(outcome("r:terminal:0"))[0]; got.Error == nil || !got.Error.Permanent || got.Error.Code != drover.CodeForbidden {
		t.Errorf("the receipt is %+v", got)
	}
}
