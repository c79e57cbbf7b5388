package natstest

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"
)

func TestServerKeepsItsStoreOverARestart(t *testing.T) {
	for _, tc := range []struct {
		name string
		opts []Option
	}{
		{"in process", nil},
		{"listening", []Option{Listen()}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			t.Run("server", func(t *testing.T) {
				s := New(t, tc.opts...)
				back := make(chan struct{}, 1)
				nc := s.Connect(nats.ReconnectHandler(func(*nats.Conn) { back <- struct{}{} }))
				js := JetStream(t, nc)
				if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
					t.Fatal(err)
				}
				if _, err := js.Publish(t.Context(), "s", []byte("kept")); err != nil {
					t.Fatal(err)
				}
				s.Restart()
				<-back
				stream, err := js.Stream(t.Context(), "S")
				if err != nil {
					t.Fatal(err)
				}
				if m, err := stream.GetMsg(t.Context(), 1); err != nil || string(m.Data) != "kept" {
					t.Fatalf("message %v, error %v", m, err)
				}
			})
		})
	}
}

func TestBubbleTakesADayInNoTime(t *testing.T) {
	Bubble(t, func(t *testing.T, s *Server) {
		js := s.JetStream()
		cfg := jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, MaxAge: 24 * time.Hour}
		stream, err := js.CreateStream(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.Publish(t.Context(), "s", nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(25 * time.Hour)
		info, err := stream.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if info.State.Msgs != 0 {
			t.Fatalf("%d messages are left after 25 hours, their age limit is 24", info.State.Msgs)
		}
	})
}

func TestClusterReplicates(t *testing.T) {
	c := NewCluster(t, 3)
	js := c.Servers[0].JetStream()
	cfg := jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Replicas: 3}
	if _, err := js.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "s", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if c.StreamLeader("S") == nil {
		t.Fatal("the stream has no leader")
	}
}
