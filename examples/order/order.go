package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/flow"
)

// Order is what somebody wants to buy.
type Order struct {
	Item  string `json:"item"`
	Count int    `json:"count"`
	Price int    `json:"price"` // of one
}

// Bill is what becomes of it.
type Bill struct {
	Charge   string `json:"charge"`
	Total    int    `json:"total"`
	Tracking string `json:"tracking"`
	By       string `json:"approved_by,omitempty"`
}

// Approval is what a person says of a large sum.
type Approval struct {
	By string `json:"by"`
}

// large is the sum from which on a person is asked.
const large = 500

// patient is for services that may be down for a while.
var patient = flow.Retry{Attempts: 5, Initial: time.Second, Max: time.Minute}

// order reads from top to bottom, and does so also where its process is killed in
// the middle: what was done is not done again. Where it returns an error, what it
// did is undone, newest first.
var order = flow.Program("order", func(run *flow.Run, o Order) (*Bill, error) {
	id := string(run.Info().ID) // the services know repeats by it
	if o.Count < 1 || o.Price < 1 {
		return nil, fmt.Errorf("nobody can buy %d for %d each", o.Count, o.Price)
	}
	_, err := flow.Step(run, "reserve",
		func(ctx context.Context) (string, error) { return reserve(ctx, id, o.Item, o.Count) },
		patient, flow.Compensate(putBack))
	if err != nil {
		return nil, err
	}
	bill := &Bill{Total: o.Count * o.Price}
	bill.Charge, err = flow.Step(run, "charge",
		func(ctx context.Context) (string, error) { return charge(ctx, id, bill.Total) },
		patient, flow.Timeout(10*time.Second), flow.Compensate(refund))
	if err != nil {
		return nil, err
	}
	if bill.Total >= large {
		said, err := flow.Wait[Approval](run, "approval", "approved", flow.Timeout(48*time.Hour))
		if errors.Is(err, drover.CodeTimeout) {
			return nil, errors.New("nobody approved the order in two days")
		}
		if err != nil { // it was stopped
			return nil, err
		}
		bill.By = said.By
	}
	// The parcel is a run of its own: it may take days, and can be looked at.
	bill.Tracking, err = flow.Invoke[string](run, "parcel", flow.ProgramNamed("parcel"), o)
	if err != nil {
		return nil, err
	}
	return bill, nil
})

// parcel packs one thing after the other, and has a carrier come.
var parcel = flow.Program("parcel", func(run *flow.Run, o Order) (string, error) {
	boxes := make([]string, o.Count)
	var pack []func(run *flow.Run) error
	for i := range boxes {
		pack = append(pack, func(run *flow.Run) (err error) {
			boxes[i], err = flow.Step(run, fmt.Sprint("pack-", i+1), func(context.Context) (string, error) {
				return fmt.Sprintf("box %d: %s", i+1, o.Item), nil
			})
			return err
		})
	}
	if err := flow.Parallel(run, flow.ParallelOptions{Limit: 4}, pack...); err != nil {
		return "", err
	}
	return flow.Call[string](run, "book", "shipping.book", boxes, patient, flow.Timeout(time.Minute))
})
