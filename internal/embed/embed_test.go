package embed

import (
	"bytes"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/droverhq/drover/internal/natstest"
)

func TestMain(m *testing.M) { natstest.VerifyTestMain(m) }

func start(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// use writes a message, and gives how many there are.
func use(t *testing.T, nc *nats.Conn) uint64 {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "s", make([]byte, 2<<20)); err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Msgs
}

func TestTheStoreOutlivesTheServer(t *testing.T) {
	for name, o := range map[string]Options{"default": {}, "sync always": {SyncAlways: true}} {
		t.Run(name, func(t *testing.T) {
			o.StoreDir = filepath.Join(t.TempDir(), "not", "there", "yet")
			for want := uint64(1); want <= 2; want++ {
				s, err := Start(o)
				if err != nil {
					t.Fatal(err)
				}
				nc, err := s.Connect()
				if err != nil {
					t.Fatal(err)
				}
				if url := s.ClientURL(); url != "" {
					t.Errorf("nobody can connect, but the URL is %q", url)
				}
				if n := use(t, nc); n != want {
					t.Errorf("%d messages, want %d", n, want)
				}
				nc.Close()
				s.Close()
			}
		})
	}
}

func TestOptionsReachTheServer(t *testing.T) {
	opts, err := Options{StoreDir: "d"}.server()
	if err != nil || opts.SyncInterval != 100*time.Millisecond || opts.SyncAlways || opts.MaxPayload != 8<<20 || !opts.DontListen {
		t.Errorf("defaults %+v, error %v", opts, err)
	}
	opts, err = Options{StoreDir: "d", SyncAlways: true, SyncInterval: time.Second, MaxPayload: 1, Listen: "[::1]:7"}.server()
	if err != nil || opts.SyncInterval != time.Second || !opts.SyncAlways || opts.MaxPayload != 1 || opts.Host != "::1" || opts.Port != 7 {
		t.Errorf("options %+v, error %v", opts, err)
	}
}

func TestListen(t *testing.T) {
	s := start(t, Options{StoreDir: t.TempDir(), Listen: "127.0.0.1:0"})
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatalf("%s: %v", s.ClientURL(), err)
	}
	defer nc.Close()
	if n := use(t, nc); n != 1 {
		t.Errorf("%d messages", n)
	}
}

func TestStartSaysWhyItCannot(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for _, tc := range []struct {
		name string
		o    Options
		says string
	}{
		{"no folder", Options{}, "StoreDir"},
		{"negative", Options{StoreDir: "d", MaxPayload: -1}, "-1"},
		{"no port", Options{StoreDir: "d", Listen: "localhost"}, `"localhost"`},
		{"bad port", Options{StoreDir: "d", Listen: "localhost:http"}, `"localhost:http"`},
		{"port taken", Options{StoreDir: t.TempDir(), Listen: l.Addr().String()}, "in use"},
		{"no folder can be made", Options{StoreDir: "/dev/null/x"}, "/dev/null"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Start(tc.o)
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("error %v, want one that says %q", err, tc.says)
			}
		})
	}
}

func TestLogs(t *testing.T) {
	var out bytes.Buffer
	s := start(t, Options{StoreDir: t.TempDir(), Logger: zerolog.New(zerolog.SyncWriter(&out))})
	s.Close()
	if !strings.Contains(out.String(), `"level":"debug"`) || !strings.Contains(out.String(), "JetStream") {
		t.Fatalf("the server logged %q", out.String())
	}
}
