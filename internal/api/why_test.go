package api_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/droverhq/drover"
)

func (o *owner) whyOf(run string) drover.WhyReply {
	o.t.Helper()
	var reply drover.WhyReply
	if err := o.ask("why", `{"run_id":"`+run+`"}`, &reply); err != nil {
		o.t.Fatal(err)
	}
	return reply
}

// A run of a program whose name is wrong waits for ever, and says so.
func TestPrograms03WhySaysThatNobodyServedAProgram(t *testing.T) {
	o := newOwner(t).serve(nil)
	o.start(`{"run_id":"run1","definition":{"program":"trpi"}}`)
	const never = "no process has ever served a program named trpi"
	if r := o.whyOf("run1"); len(r.Reasons) != 1 || !strings.Contains(r.Reasons[0].Text, never) {
		t.Errorf("why says %+v", r)
	}
	_, err := o.js.CreateConsumer(t.Context(), o.names.Calls(), jetstream.ConsumerConfig{
		Durable: o.names.Consumer("program.trpi"), FilterSubject: o.names.CallsTo("program.trpi"), AckPolicy: jetstream.AckExplicitPolicy,
	})
	if err != nil {
		t.Fatal(err)
	}
	if r := o.whyOf("run1"); len(r.Reasons) != 1 || strings.Contains(r.Reasons[0].Text, never) || !strings.Contains(r.Reasons[0].Text, "nobody serves it now") {
		t.Errorf("once somebody has served it why says %+v", r)
	}
}

// A function that is to be told of an outcome, and that nobody serves.
func TestDelivery09WhySaysThatNobodyServesASubscriber(t *testing.T) {
	o := newOwner(t).serve(nil)
	o.start(`{"run_id":"run1","definition":{"program":"trip"},"notify":{"function":"books.add"}}`)
	if err := o.ask("stop", `{"run_id":"run1","force":true}`, &drover.StopReply{}); err != nil {
		t.Fatal(err)
	}
	if r := o.whyOf("run1"); len(r.Reasons) != 1 || !strings.Contains(r.Reasons[0].Text, "no function named books.add has ever connected") {
		t.Errorf("why says %+v", r)
	}
}

func TestWhyTellsOfAnEndAndOfWhatIsUnread(t *testing.T) {
	o := newOwner(t).serve(nil)
	o.start(`{"run_id":"run1","definition":{"program":"trip"},"notify":{"subject":"a.b"}}`)
	var delivered drover.DeliverReply
	if err := o.ask("deliver", `{"run_id":"run1","name":"piad","payload":1}`, &delivered); err != nil || !delivered.Kept {
		t.Errorf("delivered %+v, %v", delivered, err)
	}
	r := o.whyOf("run1")
	if r.Error != nil || r.Subscribers != 1 || r.Unread != 1 || r.UnreadOf["piad"] != 1 {
		t.Errorf("why says %+v", r)
	}
	if err := o.ask("stop", `{"run_id":"run1","reason":"a mistake","force":true}`, &drover.StopReply{}); err != nil {
		t.Fatal(err)
	}
	if r = o.whyOf("run1"); r.Status != drover.StatusCancelled || r.Error == nil || !strings.Contains(r.Error.Message, "a mistake") {
		t.Errorf("of the end why says %+v", r)
	}
}

func TestProgramsAreListedByTheirName(t *testing.T) {
	o := newOwner(t).serve(nil)
	o.start(`{"run_id":"run1","definition":{"program":"trip"}}`)
	o.start(`{"run_id":"run2","definition":{"program":"trip"}}`)
	o.start(`{"run_id":"run3","definition":{"name":"book","program":"sale"}}`)
	o.start(`{"run_id":"run4","definition":` + plan + `}`)
	for workflow, want := range map[string][]drover.RunID{
		"":                {"run1", "run2", "run3", "run4"},
		"program:trip":    {"run1", "run2"},
		"program:sale":    {"run3"},
		"book":            {"run3"},
		"trip":            nil,
		"program:trpi":    nil,
		"program:trip@v1": nil,
		"program:trip@":   {"run1", "run2"},
		"naming":          {"run4"},
	} {
		var list drover.ListReply
		if err := o.ask("list", `{"workflow":"`+workflow+`"}`, &list); err != nil {
			t.Fatal(err)
		}
		var got []drover.RunID
		for _, r := range list.Runs {
			got = append(got, r.ID)
			if name := map[drover.RunID]string{"run1": "trip", "run2": "trip", "run3": "sale"}[r.ID]; name == "" != (r.Program == nil) || name != "" && r.Program.Name != name {
				t.Errorf("%q: run %s is of program %+v, want %q", workflow, r.ID, r.Program, name)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%q lists %v, want %v", workflow, got, want)
		}
	}
}

// The letter of a drive is found by what people would call its verb.
func TestPrograms15LettersOfDrivesAreFound(t *testing.T) {
	o := newOwner(t).serve(nil)
	broke := drover.Errorf(drover.CodePanic, "it broke")
	o.bury(drover.DeadLetter{Sequence: 1, RunID: "r1", Verb: drover.LetterDrive, Error: broke, Payload: []byte(`{}`)})
	o.bury(drover.DeadLetter{Sequence: 2, RunID: "r1", Verb: "drive", Error: broke, Payload: []byte(`{}`)})
	for verb, want := range map[string]int{"drive": 2, drover.LetterDrive: 1, "driv": 0} {
		if list := o.letters(`{"verb":"` + verb + `"}`); len(list.Letters) != want {
			t.Errorf("%s finds %+v, want %d", verb, list.Letters, want)
		}
	}
}
