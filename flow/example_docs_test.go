package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/flow/flowtest"
)

// The examples of docs/programs.md.

type Sale struct {
	Customer string
	Items    []string
	Total    int
}

type Parcel struct{ Tracking string }

var bank, shop, model, carrier service

var sale = flow.Program("sale", func(run *flow.Run, o Sale) (Parcel, error) {
	key := string(run.Info().ID) // makes a repeat harmless
	charge, err := flow.Step(run, "charge", func(ctx context.Context) (string, error) {
		return bank.Charge(ctx, o.Customer, o.Total, key)
	}, flow.Retry{Attempts: 5}, flow.Timeout(10*time.Second), flow.Compensate(func(ctx context.Context, charge string) error {
		return bank.Refund(ctx, charge)
	}))
	if err != nil {
		return Parcel{}, err
	}
	if o.Total > 1000 {
		answer, err := flow.Approve(run, "review", map[string]any{"sale": o, "charge": charge}, flow.Timeout(48*time.Hour))
		if err != nil {
			return Parcel{}, err
		}
		if !answer.Approved {
			return Parcel{}, errors.New("the sale was turned down") // and the charge is refunded
		}
	}
	return flow.Call[Parcel](run, "ship", "warehouse.ship", o, flow.Retry{}, flow.Timeout(time.Minute))
})

var pick = flow.Program("pick", func(run *flow.Run, o Sale) ([]string, error) {
	picked := make([]string, len(o.Items))
	var branches []func(*flow.Run) error
	for i, item := range o.Items {
		branches = append(branches, func(run *flow.Run) error {
			place, err := flow.Step(run, fmt.Sprint("pick-", i), func(ctx context.Context) (string, error) { return shop.Pick(ctx, item) })
			picked[i] = place
			return err
		})
	}
	return picked, flow.Parallel(run, flow.ParallelOptions{Limit: 10}, branches...)
})

var remind = flow.Program("remind", func(run *flow.Run, _ any) (string, error) {
	for day := 1; ; day++ {
		paid := flow.StartWait[json.RawMessage](run, fmt.Sprint("paid-", day), "paid")
		late := flow.StartSleep(run, fmt.Sprint("day-", day), 24*time.Hour)
		first, err := flow.Select(run, paid, late)
		switch {
		case err != nil:
			return "", err
		case first == 0:
			return fmt.Sprintf("paid on day %d", day), nil
		}
		if _, err := flow.Step(run, fmt.Sprint("remind-", day), func(ctx context.Context) (any, error) { return nil, shop.Remind(ctx, day) }); err != nil {
			return "", err
		}
	}
})

var trip = flow.Program("trip", func(run *flow.Run, city string) (string, error) {
	err := run.Group("train", func(run *flow.Run) error { return book(run, "train", city) })
	if err == nil {
		return "by train", nil
	}
	if err := book(run, "flight", city); err != nil { // what the group did is undone by now
		return "", err
	}
	return "by plane", nil
})

var letter = flow.Program("letter", func(run *flow.Run, topic string) (any, error) {
	out := flow.Stream(run, "letter")
	for part := 1; part <= 3; part++ {
		text, err := flow.Step(run, fmt.Sprint("part-", part), func(ctx context.Context) (string, error) { return model.Write(ctx, topic, part) })
		if err != nil {
			return nil, err
		}
		if err := out.Text(text); err != nil {
			return nil, err
		}
	}
	return nil, out.Close()
})

func book(run *flow.Run, what, city string) error {
	_, err := flow.Step(run, what, func(ctx context.Context) (string, error) { return carrier.Book(ctx, what, city) },
		flow.Compensate(func(ctx context.Context, ticket string) error { return carrier.Cancel(ctx, ticket) }))
	if err != nil {
		return err
	}
	_, err = flow.Step(run, what+"-seat", func(ctx context.Context) (string, error) { return carrier.Book(ctx, what+" seat", city) })
	return err
}

func TestSale(t *testing.T) {
	o := Sale{Customer: "kim", Total: 2000}
	r := flowtest.Check(t, sale, o, func(e *flowtest.Env) {
		e.Function("warehouse.ship", func(json.RawMessage) (any, error) { return Parcel{Tracking: "T1"}, nil })
		e.After(24*time.Hour, func() { e.Decide("review", true) })
	})
	if got := flowtest.Output[Parcel](r); got.Tracking != "T1" {
		t.Errorf("shipped %+v", got)
	}
}

// service stands for what these programs use.
type service struct{}

func (service) Charge(_ context.Context, customer string, _ int, key string) (string, error) {
	return customer + key, nil
}
func (service) Refund(context.Context, string) error                { return nil }
func (service) Remind(context.Context, int) error                   { return nil }
func (service) Cancel(context.Context, string) error                { return nil }
func (service) Pick(_ context.Context, item string) (string, error) { return "shelf of " + item, nil }

func (service) Write(_ context.Context, s string, n int) (string, error) {
	return fmt.Sprint(s, n, ";"), nil
}

func (service) Book(_ context.Context, what, city string) (string, error) {
	if what == "train seat" {
		return "", errors.New("no seat to " + city)
	}
	return what, nil
}

func TestTheOtherExamples(t *testing.T) {
	if got := flowtest.Output[[]string](flowtest.Check(t, pick, Sale{Items: []string{"a", "b"}}, nil)); strings.Join(got, ", ") != "shelf of a, shelf of b" {
		t.Errorf("picked %q", got)
	}
	paid := func(e *flowtest.Env) { e.After(50*time.Hour, func() { e.Deliver("paid", nil) }) }
	if got := flowtest.Output[string](flowtest.Check(t, remind, nil, paid)); got != "paid on day 3" {
		t.Errorf("it was %q", got)
	}
	if got := flowtest.Output[string](flowtest.Check(t, trip, "Oslo", nil)); got != "by plane" {
		t.Errorf("it went %q", got)
	}
	if got := text(flowtest.Check(t, letter, "cats", nil).Streams["letter"]); got != "1:text:cats1; 2:text:cats2; 3:text:cats3;" {
		t.Errorf("the letter is %q", got)
	}
	no := func(e *flowtest.Env) { e.Decide("review", false) }
	if r := flowtest.Check(t, sale, Sale{Total: 2000}, no); r.Status != drover.StatusCompensated {
		t.Errorf("the sale is %s: %v", r.Status, r.Error)
	}
}
