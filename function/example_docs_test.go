package function_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/function/functiontest"
	"github.com/droverhq/drover/internal/natstest"
)

// The examples of docs/functions.md.

type Payment struct {
	Order string `json:"order"`
	Cents int    `json:"cents"`
}

type Receipt struct {
	ID string `json:"id"`
}

var charge = function.New("pay.charge", func(ctx context.Context, p Payment) (Receipt, error) {
	id, status := bank.Charge(ctx, p.Order, p.Cents, keyOf(ctx))
	switch status {
	case http.StatusOK:
		return Receipt{ID: id}, nil
	case http.StatusPaymentRequired:
		return Receipt{}, function.Permanent(fmt.Errorf("the card for order %s was declined", p.Order))
	case http.StatusTooManyRequests:
		return Receipt{}, function.RetryAfter(errors.New("the bank wants us to wait"), 30*time.Second)
	default:
		return Receipt{}, fmt.Errorf("the bank said %d", status)
	}
})

func serve(ctx context.Context, url string) error {
	nc, err := nats.Connect(url, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	server, err := function.NewServer(nc, function.Options{Concurrency: 8, DrainTimeout: time.Minute}, charge, resize)
	if err != nil {
		return err
	}
	return server.Run(ctx) // until ctx ends, and what was begun has ended
}

var resize = function.New("image.resize", func(ctx context.Context, images []string) (int, error) {
	for i, image := range images {
		if err := shrink(ctx, image); err != nil {
			return i, err // ctx has ended, say
		}
		if err := function.Heartbeat(ctx, map[string]int{"done": i + 1}); err != nil {
			return i, err
		}
	}
	return len(images), nil
})

// keyOf is the same for all attempts of a call, however often each is delivered.
func keyOf(ctx context.Context) string {
	id := function.Info(ctx).ID
	id.Attempt = 0
	return id.String() // such as order-17/charge@0
}

func TestCharge(t *testing.T) {
	fleet := functiontest.New(t).SetUp()
	fleet.Serve(function.Options{}, charge)

	fleet.Queue("order-17/charge@2", "pay.charge", `{"order": "17", "cents": 1200}`)
	if r := fleet.Next(); string(r.Output) != `{"id":"order-17/charge@0"}` {
		t.Errorf("charged %s: %v", r.Output, r.Error)
	}
	fleet.Queue("order-18/charge@1", "pay.charge", `{"order": "18", "cents": 99999999}`)
	if r := fleet.Next(); r.Error == nil || !r.Error.Permanent {
		t.Errorf("charged %s: %v", r.Output, r.Error)
	}
}

var bank service

// service stands for what these functions use.
type service struct{}

func (service) Charge(_ context.Context, _ string, cents int, key string) (string, int) {
	switch {
	case cents < 0:
		return "", http.StatusTooManyRequests
	case cents > 1_000_000:
		return "", http.StatusPaymentRequired
	}
	return key, http.StatusOK
}

func shrink(ctx context.Context, _ string) error { return ctx.Err() }

func TestTheOtherExamplesOfTheDocument(t *testing.T) {
	fleet := functiontest.On(t, natstest.New(t, natstest.Listen())).SetUp()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, fleet.Server.URL()) }()
	defer func() {
		stop()
		if err := functiontest.Await(t, ended, "the end of the server"); err != nil {
			t.Error(err)
		}
	}()

	fleet.Queue("order-19/charge@1", "pay.charge", `{"order": "19", "cents": -1}`)
	if r := fleet.Next(); r.Error == nil || r.Error.RetryAfter != drover.Duration(30*time.Second) || r.Error.Permanent {
		t.Errorf("charged %s: %v", r.Output, r.Error)
	}
	fleet.Queue("order-19/small@1", "image.resize", `["a", "b"]`)
	for _, want := range []string{`{"done":1}`, `{"done":2}`} {
		if r := fleet.Next(); string(r.Progress) != want {
			t.Errorf("the progress is %s, want %s", r.Progress, want)
		}
	}
	if r := fleet.Next(); string(r.Output) != "2" {
		t.Errorf("resized %s: %v", r.Output, r.Error)
	}
}
