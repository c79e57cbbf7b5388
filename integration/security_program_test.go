package integration_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/flow"
)

// TestProgramsHaveTheirRoles: the rights that docs/security.md gives are enough to
// serve a program, to write a stream and to read it, and no more.
func TestProgramsHaveTheirRoles(t *testing.T) {
	s := guarded(t, configured(t, documented(t, oneAccount)))
	worker := launch(t, alone.flags(s, "worker", "serve", "--partitions", "4")...)
	order, reader, operator := alone.as(t, s, "order"), alone.as(t, s, "reader"), alone.as(t, s, "operator")
	def := flow.Program("order", func(run *flow.Run, item string) (string, error) {
		w := flow.Stream(run, "log")
		if err := w.Text("packing " + item + "\n"); err != nil {
			return "", err
		}
		big, err := flow.Step(run, "pack", func(context.Context) (string, error) { return strings.Repeat(item, 1000), nil })
		if err != nil {
			return "", err
		}
		if _, err := flow.Wait[json.RawMessage](run, "paid", "paid"); err != nil {
			return "", err
		}
		if err := w.Text("paid\n"); err != nil {
			return "", err
		}
		return big[:5], w.Close()
	})
	srv, err := flow.NewServer(order.nc, flow.Options{KeepBodies: -1}, def) // so that the journal is read
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	defer func() {
		cancel()
		if err := await(t, ended, "the end of the server"); err != nil {
			t.Error(err)
		}
	}()
	start := drover.StartRequest{RunID: "o1", Definition: json.RawMessage(`{"program":"order"}`), Input: json.RawMessage(`"books"`)}
	if _, err := operator.Start(t.Context(), start); err != nil {
		t.Fatal(err)
	}
	text := ""
	for chunk, err := range reader.Stream(t.Context(), "o1", "log") {
		if err != nil {
			t.Fatal(err)
		}
		if text += string(chunk.Data); chunk.Number == 1 {
			if _, err := operator.Deliver(t.Context(), drover.DeliverRequest{RunID: "o1", Name: "paid"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if text != "packing books\npaid\n" {
		t.Errorf("the stream is %q", text)
	}
	if o, err := operator.Wait(t.Context(), "o1"); err != nil || string(o.Result) != `"books"` {
		t.Errorf("the outcome is %+v, %v", o, err)
	}
	for _, args := range [][]string{{"stream", "o1", "log"}, {"history", "o1"}, {"status", "o1"}} {
		p := launch(t, alone.flags(s, "operator", args...)...)
		if status, out, stderr := p.wait(); status != 0 || stderr != "" || out == "" {
			t.Errorf("%v: exit status %d, %s, %s", args, status, out, stderr)
		}
	}
	for _, p := range []*person{order, reader, operator} {
		if len(p.refused) > 0 {
			t.Errorf("something was refused: %v", <-p.refused)
		}
	}
	quiet(t, worker)

	order.cannotPublish("drover.in.o1.result", "drover.in.o1.stop", "drover.api.start", "drover.call.o1.program.order", "$JS.API.STREAM.PURGE.DROVER_STREAMS")
	order.cannotSubscribe("drover.stream.*.*", "_INBOX.drover.reader.>", "drover.call.>")
	reader.cannotPublish("drover.stream.o1.log", "drover.in.o1.record", "drover.api.journal", "$JS.API.STREAM.PURGE.DROVER_STREAMS")
	reader.cannotSubscribe("_INBOX.drover.order.>", "drover.drive.*")
}
