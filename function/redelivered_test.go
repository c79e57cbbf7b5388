package function_test

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover/function"
	"github.com/droverhq/drover/function/functiontest"
)

// A server takes an ack of any delivery for one of the message, so a delivery that
// gave way to a later one of the same message must not answer for it.
func TestAnEarlierDeliveryDoesNotAnswerForALaterOne(t *testing.T) {
	f := newFleet(t)
	began := make(chan uint64, 100)
	second, first := make(chan struct{}), make(chan struct{})
	f.Serve(function.Options{}, function.Message("f", func(_ context.Context, m *nats.Msg) error {
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		switch meta.NumDelivered {
		case 1:
			if err := f.Conn.Publish(m.Reply, []byte("-NAK")); err != nil { // as if it had been silent for too long
				return err
			}
			<-second
			close(first)
		case 2:
			close(second)
			<-first
			began <- 2
			return errors.New("it is to come again")
		default:
			began <- meta.NumDelivered
		}
		return nil
	}))
	f.Queue("run1/n@1", "f", "1")
	for want := range uint64(2) {
		if got := functiontest.Await(t, began, "a delivery"); got != want+2 {
			t.Fatalf("delivery %d, want %d", got, want+2)
		}
	}
	f.Drained()
}
