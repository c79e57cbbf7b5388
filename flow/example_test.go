package flow_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/flow/flowtest"
)

// Order is the input of the program order.
type Order struct {
	Customer string
	Cents    int
}

// charge and refund stand for a payment service.
func charge(o Order) (string, error) { return "charge-" + o.Customer, nil }
func refund(string) error            { return nil }

// order charges a customer, has somebody approve what is expensive, and ships. When
// any of it fails, or the run is stopped, the charge is refunded.
var order = flow.Program("order", func(run *flow.Run, o Order) (string, error) {
	_, err := flow.Step(run, "charge", func(context.Context) (string, error) { return charge(o) },
		flow.Retry{Attempts: 5},
		flow.Timeout(10*time.Second),
		flow.Compensate(func(_ context.Context, id string) error { return refund(id) }))
	if err != nil {
		return "", err
	}
	if o.Cents > 100_00 {
		d, err := flow.Approve(run, "expensive", map[string]any{"question": "Ship this?", "cents": o.Cents}, flow.Timeout(72*time.Hour))
		if err != nil {
			return "", err
		}
		if !d.Approved {
			return "", errors.New("it was not approved")
		}
	}
	return flow.Invoke[string](run, "ship", flow.Workflow("shipping"), o)
})

func Example() {
	script := func(approved bool) flowtest.Script {
		return func(e *flowtest.Env) {
			e.Child("shipping", func(raw) (any, error) { return "on its way", nil })
			e.After(24*time.Hour, func() { e.Decide("expensive", approved) })
		}
	}
	var t testing.TB = quiet{}
	r := flowtest.Run(t, order, Order{"joe", 500_00}, script(true))
	fmt.Println(r.Status, flowtest.Output[string](r), r.Elapsed)
	r = flowtest.Run(t, order, Order{"joe", 500_00}, script(false))
	fmt.Println(r.Status, r.Error)
	// Output:
	// completed on its way 24h0m0s
	// compensated it was not approved
}

// quiet is a test where there is none.
type quiet struct{ testing.TB }

func (quiet) Helper()                          {}
func (quiet) Context() context.Context         { return context.Background() }
func (quiet) Fatalf(format string, a ...any)   { panic(fmt.Sprintf(format, a...)) }
func (q quiet) Errorf(format string, a ...any) { q.Fatalf(format, a...) }
