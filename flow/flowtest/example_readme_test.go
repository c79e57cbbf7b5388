package flowtest_test

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover/flow"
)

type (
	Order   struct{ Amount int }
	Receipt struct{ Payment string }
	Payment struct{ ID string }
	Parcel  struct{}
)

func charge(context.Context, Order) (Payment, error) { return Payment{}, nil }
func refund(context.Context, Payment) error          { return nil }

// What the README of the project shows, so that it compiles.
func Example_readme() {
	serve := func(ctx context.Context, nc *nats.Conn) error {
		order := flow.Program("order", func(run *flow.Run, in Order) (Receipt, error) {
			paid, err := flow.Step(run, "charge", func(ctx context.Context) (Payment, error) { return charge(ctx, in) },
				flow.Retry{Attempts: 5}, flow.Compensate(func(ctx context.Context, p Payment) error { return refund(ctx, p) }))
			if err != nil {
				return Receipt{}, err
			}
			if _, err := flow.Wait[Parcel](run, "packed", "packed", flow.Timeout(48*time.Hour)); err != nil {
				return Receipt{}, err // the payment is undone
			}
			return Receipt{paid.ID}, nil
		})
		err := flow.Serve(ctx, nc, order)
		return err
	}
	_ = serve
}
