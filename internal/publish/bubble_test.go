package publish

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/internal/natstest"
)

func TestSilenceTimesOut(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, s *natstest.Server) {
		nc := s.Connect()
		silent(t, nc)
		p, err := New(nc, Options{Timeout: 4 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		for range 2 { // the second shows that the timer is set anew
			begin := time.Now()
			got := make(chan error, 2)
			p.Publish(message("silent", ""), func(_ Ack, err error) { got <- err })
			time.Sleep(time.Second)
			p.Publish(message("silent", ""), func(_ Ack, err error) { got <- err })
			for i := range 2 {
				if err := <-got; !errors.Is(err, drover.CodeUnavailable) {
					t.Fatalf("error %v, want unavailable", err)
				}
				due := time.Duration(4+i) * time.Second
				if d := time.Since(begin); d < due || d > due+time.Second {
					t.Fatalf("gave up on message %d after %v, want %v", i, d, due)
				}
			}
			time.Sleep(time.Hour)
		}
	})
}

func TestWhatWaitsForItsBatchTimesOut(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, s *natstest.Server) {
		nc := s.Connect()
		silent(t, nc)
		p, err := New(nc, Options{Timeout: 4 * time.Second, Group: oneLane})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		begin := time.Now()
		var ends []time.Duration // all callbacks are on one goroutine
		send := func(n int) {
			for range n {
				p.Publish(message("silent", ""), func(_ Ack, err error) {
					if !errors.Is(err, drover.CodeUnavailable) {
						t.Errorf("error %v, want unavailable", err)
					}
					ends = append(ends, time.Since(begin))
				})
			}
		}
		send(1 + minBatch) // a batch waits, and is sent when the first is given up
		time.Sleep(2 * time.Second)
		send(minBatch + 3) // these wait for that
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(ends) != 2*minBatch+4 || p.InFlight() != 0 {
			t.Fatalf("%d callbacks, %d in flight", len(ends), p.InFlight())
		}
		for i, end := range ends {
			if end < 4*time.Second || end > 9*time.Second {
				t.Errorf("message %d was given up after %v", i, end)
			}
		}
		if _, err := p.Do(t.Context(), message("nobody", "")); !errors.Is(err, errNoStream) {
			t.Errorf("error %v: the lane is not free again", err)
		}
	})
}

func TestPublishWaitsForRoom(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, s *natstest.Server) {
		nc := s.Connect()
		asked := make(chan *nats.Msg, 8)
		if _, err := nc.ChanSubscribe("slow", asked); err != nil {
			t.Fatal(err)
		}
		p, err := New(nc, Options{MaxInFlight: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		acks := make(chan Ack, 3)
		third := make(chan struct{})
		go func() {
			defer close(third)
			for range 3 {
				p.Publish(message("slow", ""), func(a Ack, _ error) { acks <- a })
			}
		}()
		synctest.Wait()
		select {
		case <-third:
			t.Fatal("three messages are in flight, at most two may be")
		default:
		}
		if err := (<-asked).Respond([]byte(`{"stream":"S","seq":7,"domain":"d"}`)); err != nil {
			t.Fatal(err)
		}
		<-third
		if a := <-acks; a.Stream != "S" || a.Sequence != 7 {
			t.Fatalf("ack %+v", a)
		}
	})
}
