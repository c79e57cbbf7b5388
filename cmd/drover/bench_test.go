package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestBench(t *testing.T) {
	args := []string{"bench", "--only", "W1", "--in-flight", "2", "--duration", "500ms", "--partitions", "4"}
	var out, errs bytes.Buffer
	if status := execute(t.Context(), append(args, "--json"), streams{out: &out, err: &errs}); status != exitCompleted {
		t.Fatalf("status %d: %s", status, &errs)
	}
	var row struct {
		Workload string  `json:"workload"`
		InFlight int     `json:"in_flight"`
		Rate     float64 `json:"runs_per_second"`
	}
	if err := json.Unmarshal(out.Bytes(), &row); err != nil || row.Workload != "W1" || row.InFlight != 2 || row.Rate <= 0 {
		t.Errorf("error %v, output %s", err, &out)
	}
	out.Reset()
	if status := execute(t.Context(), args, streams{out: &out, err: &errs}); status != exitCompleted {
		t.Fatalf("status %d: %s", status, &errs)
	}
	if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) != 2 || !strings.HasPrefix(lines[1], "W1 ") {
		t.Errorf("output:\n%s", &out)
	}
}

func TestBenchUsage(t *testing.T) {
	for _, args := range []string{"--only W13", "--sync never", "--replicas 2", "--nats nats://127.0.0.1:1 --sync always"} {
		var out, errs bytes.Buffer
		status := execute(t.Context(), append([]string{"bench"}, strings.Fields(args)...), streams{out: &out, err: &errs})
		if status != exitUsage || out.Len() > 0 && !strings.Contains(out.String(), "in flight") || errs.Len() == 0 {
			t.Errorf("%s: status %d, output %q, errors %q", args, status, &out, &errs)
		}
	}
}
