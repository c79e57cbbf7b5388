package main

import (
	"bytes"
	"net"
	"strings"
	"testing"

	"github.com/droverhq/drover/internal/natstest"
)

// An address that cannot be served is an error, and nothing goes on without it.
func TestHTTPNeedsItsAddress(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	s := natstest.New(t, natstest.Listen())
	for address, want := range map[string]struct {
		status int
		says   string
	}{
		"8080":                  {exitUsage, `--http "8080" must be host:port`},
		taken.Addr().String():   {exitFailed, "cannot be listened at"},
		"127.0.0.1:notaservice": {exitFailed, "cannot be listened at"},
	} {
		for name, args := range map[string][]string{
			"dev":   {"dev", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--http", address},
			"serve": {"serve", "--nats", s.URL(), "--partitions", "4", "--http", address},
		} {
			t.Run(name+" "+address, func(t *testing.T) {
				var out, told bytes.Buffer
				status := execute(t.Context(), args, streams{in: strings.NewReader(""), out: &out, err: &told})
				if status != want.status || !strings.Contains(told.String(), want.says) {
					t.Errorf("exit status %d, told %s", status, told.String())
				}
			})
		}
	}
}
