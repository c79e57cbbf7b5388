package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover/flow"
)

// doneEnv names the file in which a host notes the steps that it does.
const doneEnv = "DROVER_TEST_DONE"

// host starts a process that serves a kind of program under some names. It is the
// binary of the tests, which plays it.
func host(t testing.TB, url, done, instance, kind, dies string, names ...string) *process {
	t.Helper()
	return start(t, hosting(t, url, done, instance, kind, dies, names...))
}

func hosting(t testing.TB, url, done, instance, kind, dies string, names ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, instance, kind, dies, strings.Join(names, ",")) //nolint:noctx // the test ends it
	cmd.Env = append(os.Environ(), playsEnv+"=programs", "NATS_URL="+url, doneEnv+"="+done)
	return cmd
}

// hostPrograms is what that process does.
func hostPrograms(args []string) error {
	nc, err := nats.Connect(os.Getenv("NATS_URL"), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		return err
	}
	defer nc.Close()
	opts := flow.Options{Instance: args[0], Concurrency: 256, KeepBodies: keeps, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	var programs []*flow.Def
	for _, name := range strings.Split(args[3], ",") {
		switch args[1] {
		case "twenty":
			programs = append(programs, twenty(name, args[2]))
		case "pair":
			programs = append(programs, pair(name, args[0]))
		case "parked":
			programs = append(programs, parked(name))
		case "doomed":
			programs = append(programs, doomed(nc, name, args[2]))
		case "faulty":
			programs = append(programs, faulty(name, args[2]))
		}
	}
	if _, err := nc.Subscribe("memory."+args[0], func(m *nats.Msg) { _ = m.Respond(inUse()) }); err != nil {
		return err
	}
	s, err := flow.NewServer(nc, opts, programs...)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() { // ends with the server
		<-s.Ready()
		fmt.Println("serving")
	}()
	return s.Run(ctx)
}

// inUse is how many bytes this process has in use.
func inUse() []byte {
	runtime.GC()
	runtime.GC() // what the first one has finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	data, _ := json.Marshal(m.HeapAlloc + m.StackInuse)
	return data
}

// noted notes that a step is done, durably as far as this process goes.
func noted(run, step string) error {
	f, err := os.OpenFile(os.Getenv(doneEnv), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, run, step)
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// die ends the process as no code can notice: by exit, or by the system.
func die(hard bool) {
	if !hard {
		os.Exit(1)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// twentySum is the result of twenty.
const twentySum = "210"

// twenty is a program of 20 steps, whose process dies after one of them (after:7),
// or in one (in:7).
func twenty(name, dies string) *flow.Def {
	return flow.Program(name, func(run *flow.Run, _ any) (sum int, err error) {
		id := string(run.Info().ID)
		for i := 1; i <= 20; i++ {
			n, err := flow.Step(run, fmt.Sprint("s", i), func(context.Context) (int, error) {
				err := noted(id, fmt.Sprint("s", i))
				if dies == fmt.Sprint("in:", i) {
					die(i%2 == 0)
				}
				return i, err
			})
			if err != nil {
				return 0, err
			}
			if sum += n; dies == fmt.Sprint("after:", i) {
				die(i%2 == 0)
			}
			if i%5 == 0 {
				if err := run.Sleep(fmt.Sprint("rest", i), time.Millisecond); err != nil {
					return 0, err
				}
			}
		}
		return sum, nil
	})
}

// pair is a program of one step, in which the process called old stays until its
// standard input ends.
func pair(name, instance string) *flow.Def {
	return flow.Program(name, func(run *flow.Run, _ any) (string, error) {
		defer fmt.Println("left")
		who, err := flow.Step(run, "one", func(context.Context) (string, error) {
			fmt.Println("in one")
			if instance == "old" {
				_, _ = io.Copy(io.Discard, os.Stdin)
			}
			return instance, nil
		})
		if err != nil {
			return "", err
		}
		fmt.Println("past one")
		_, err = flow.Wait[any](run, "end", "end")
		return who, err
	})
}

// keeps is how many bodies a host keeps.
const keeps = 100

// parked is a program that holds on to 64 KiB while it waits: half of them with a
// time at which they would go on by themselves.
func parked(name string) *flow.Def {
	return flow.Program(name, func(run *flow.Run, in struct{ N int }) (int, error) {
		held := make([]byte, 64<<10)
		for i := range held {
			held[i] = byte(in.N)
		}
		var within []flow.Option
		if in.N%2 == 1 {
			within = append(within, flow.Timeout(24*time.Hour))
		}
		more, err := flow.Wait[int](run, "more", "more", within...)
		return in.N + more + int(held[0]-byte(in.N)), err
	})
}
