package main

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/subjects"
)

func TestOperationsAskTheFleet(t *testing.T) {
	at := time.Now().Add(-90 * time.Second)
	letter := drover.DeadLetter{
		Sequence: 1042, RunID: "odd$id", Verb: "stop\x1b[2J", Bytes: 5, At: &at,
		Error: drover.Errorf(drover.CodeInvalidID, "run id \"odd$id\"\nis none"), Payload: []byte("a\x00\x1bb\n"),
	}
	since := time.Now().Add(-2 * time.Hour)
	whole := drover.FleetReply{
		Members: []drover.Member{{ID: "w1-a", Name: "w1", Since: since, Partitions: 1, Leaving: true}, {ID: "w2-b", Name: "w2", Since: since, Partitions: 1}},
		Partitions: []drover.Partition{
			{Number: 0, Worker: "w1-a", Epoch: 1, Cursor: 7},
			{Number: 1, Worker: "w2-b", Epoch: 3, Cursor: 9, Lag: 12, Oldest: &at, Slow: true},
			{Number: 2, Slow: true},
		},
		Dead: 5,
	}
	for _, c := range []asking{
		{
			name: "list", args: []string{"dead", "list", "--run", "odd$id", "--verb", "stop", "--code", "invalid_id", "--limit", "3"}, verb: "dead.list",
			reply: drover.DeadList{Letters: []drover.DeadLetter{letter}, More: true},
			asked: `{"run_id":"odd$id","verb":"stop","code":"invalid_id","limit":3}`,
			out:   []string{"SEQUENCE  RUN     VERB", "\n1042      odd$id  stop?[2J  5      1m30s  invalid_id: run id \"odd$id\"?is none\n", "there are more"},
		},
		{
			name: "show", args: []string{"dead", "show", "1042"}, verb: "dead.show", reply: letter, asked: `{"sequence":1042}`,
			out: []string{"sequence  1042\nrun       odd$id\nverb      stop?[2J\n", "error     invalid_id: run id", "payload   5 bytes\n\n" + `"a\x00\x1bb\n"` + "\n"},
		},
		{
			name: "show nothing", args: []string{"dead", "show", "7"}, verb: "dead.show", asked: `{"sequence":7}`,
			reply: drover.Errorf(drover.CodeNotFound, "there is no dead letter 7"), status: exitFailed, err: "there is no dead letter 7",
		},
		{
			name: "requeue", args: []string{"dead", "requeue", "7", "8"}, verb: "dead.requeue", asked: `{"sequence":8}`,
			reply: drover.RequeueReply{RunID: "r_1", Verb: "stop", Sequence: 99},
			out:   []string{"stop of run r_1 is command 99 now\nstop of run r_1 is command 99 now\n"},
		},
		{
			name: "fleet", args: []string{"fleet"}, verb: "fleet", asked: `{}`, reply: whole,
			out: []string{
				"WORKER  NAME  UP     PARTITIONS\nw1-a    w1    2h00m  1           leaving\nw2-b    w2    2h00m  1\n",
				"PARTITION  OWNER   EPOCH  CURSOR  LAG  OLDEST\n0          w1-a    1      7       0    -\n1          w2-b    3      9       12   1m30s   slow\n2          nobody  0      0       0    -       slow\n",
				"\n2 workers, 3 partitions, 2 of them slow, 12 commands behind, 5 dead letters\n",
			},
		},
		{
			name: "slow partitions", args: []string{"fleet", "--slow"}, verb: "fleet", asked: `{}`, reply: whole,
			out: []string{"OLDEST\n1          w2-b", "\n2          nobody"},
		},
	} {
		t.Run(c.name, c.run)
	}
	for _, arg := range []string{"x", "0", "-1", "1.5"} {
		if status, _, err := cli(t, "", "dead", "show", "--", arg); status != exitUsage || !strings.Contains(err, "is no sequence of a dead letter") {
			t.Errorf("%s: exit status %d, %q", arg, status, err)
		}
	}
}

// A start that names a workflow before it is registered is a dead letter of a
// real worker. Once the workflow is there it can be requeued.
func TestADeadStartIsRequeued(t *testing.T) {
	l, err := startLocal(t.Context(), localOptions{data: t.TempDir(), listen: "127.0.0.1:0", log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.stop(); err != nil {
			t.Error(err)
		}
	})
	nc, c := l.nc, l.client
	names := subjects.Default()
	buried, err := nc.SubscribeSync(names.DeadAll())
	if err != nil {
		t.Fatal(err)
	}
	for subject, body := range map[string]string{
		names.In("early", drover.VerbStart): `{"workflow":"late"}`,
		names.In("early", "dance"):          `{}`,
	} {
		if _, err := nc.Request(subject, []byte(body), time.Minute); err != nil {
			t.Fatal(err)
		}
		if _, err := buried.NextMsg(time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	def := json.RawMessage(`{"name":"late","nodes":{"a":{"set":{"with":7}}},"output":{"from":"node:a"}}`)
	if _, err := c.PutDefinition(t.Context(), drover.DefinitionRequest{Definition: def}); err != nil {
		t.Fatal(err)
	}
	t.Setenv(envName("nats"), l.server.ClientURL())
	var list drover.DeadList
	for deadline := time.Now().Add(time.Minute); len(list.Letters) != 2; { // a letter is heard of before it is stored
		status, out, stderr := cli(t, "", "dead", "list", "--json")
		list = drover.DeadList{}
		if err := json.Unmarshal([]byte(out), &list); err != nil || status != 0 || time.Now().After(deadline) {
			t.Fatalf("exit status %d, %q, %q", status, out, stderr)
		}
	}
	for _, letter := range list.Letters {
		status, out, stderr := cli(t, "", "dead", "requeue", strconv.FormatUint(letter.Sequence, 10))
		if letter.Verb == "start" && (status != 0 || !strings.HasPrefix(out, "start of run early is command")) {
			t.Errorf("start: exit status %d, %q, %q", status, out, stderr)
		}
		if letter.Verb == "dance" && (status != exitUsage || !strings.Contains(stderr, "cannot be requeued")) {
			t.Errorf("dance: exit status %d, %q, %q", status, out, stderr)
		}
	}
	if o, err := c.Wait(t.Context(), "early"); err != nil || string(o.Result) != "7" {
		t.Errorf("outcome %+v, error %v", o, err)
	}
	status, out, stderr := cli(t, "", "fleet", "--json")
	var reply drover.FleetReply
	if err := json.Unmarshal([]byte(out), &reply); err != nil || status != 0 {
		t.Fatalf("exit status %d, %q, %q", status, out, stderr)
	}
	if len(reply.Members) != 1 || reply.Members[0].Name == "" || reply.Members[0].Since.IsZero() || reply.Members[0].Partitions != len(reply.Partitions) || reply.Dead != 1 {
		t.Errorf("fleet %s", out)
	}
	for _, p := range reply.Partitions {
		if p.Worker != reply.Members[0].ID || p.Epoch == 0 || p.Slow {
			t.Errorf("partition %+v", p)
		}
	}
}
