package replies_test

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover/internal/natstest"
	"github.com/droverhq/drover/internal/replies"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

func TestEachAnswerComesToWhoeverWaits(t *testing.T) {
	nc := natstest.New(t).Connect()
	r := replies.New(nc)
	shut, err := r.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer shut()
	first, one, forgetOne := r.Expect()
	second, two, forgetTwo := r.Expect()
	defer forgetTwo()
	third, three, forgetThree := r.Expect()
	forgetThree()
	for _, m := range []*nats.Msg{
		{Subject: third, Data: []byte("too late")},
		{Subject: second, Data: []byte("2")},
		{Subject: second, Data: []byte("again")},
		{Subject: first, Data: []byte("1")},
	} {
		if err := nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	if m := <-one; string(m.Data) != "1" {
		t.Errorf("the first got %q", m.Data)
	}
	if m := <-two; string(m.Data) != "2" {
		t.Errorf("the second got %q", m.Data)
	}
	forgetOne() // what came is no reason that it may not be called
	select {
	case m := <-two:
		t.Errorf("a second answer came: %q", m.Data)
	case m := <-three:
		t.Errorf("what was forgotten got %q", m.Data)
	default:
	}
}
