package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/flow"
)

// script is the input of the program: docs/conformance.md.
type script struct {
	Probe  string `json:"probe"`
	Script []op   `json:"script"`
}

// op is one thing that the body does.
type op struct {
	Op         string             `json:"op"`
	ID         string             `json:"id,omitempty"`
	Catch      bool               `json:"catch,omitempty"`
	Tell       bool               `json:"tell,omitempty"`
	Retry      *retry             `json:"retry,omitempty"`
	Compensate bool               `json:"compensate,omitempty"`
	For        drover.Duration    `json:"for,omitempty"`
	Name       string             `json:"name,omitempty"`
	Timeout    drover.Duration    `json:"timeout,omitempty"`
	Function   string             `json:"function,omitempty"`
	Definition *drover.Definition `json:"definition,omitempty"`
	Input      any                `json:"input,omitempty"`
	Of         []op               `json:"of,omitempty"`
	Before     []op               `json:"before,omitempty"`
	After      []op               `json:"after,omitempty"`
	Error      *drover.Error      `json:"error,omitempty"`
	Message    string             `json:"message,omitempty"`
}

type retry struct {
	Attempts int `json:"attempts"`
	Initial  int `json:"initial_ms"`
}

// question is what a step asks the test.
type question struct {
	Run  drover.RunID      `json:"run_id"`
	Kind drover.EntryKind  `json:"kind"` // step or undo
	ID   string            `json:"id"`
	Seen []json.RawMessage `json:"seen"`
}

// told is what the test answers.
type told struct {
	Output json.RawMessage `json:"output,omitempty"`
	Error  *drover.Error   `json:"error,omitempty"`
}

// host serves the program by the SDK, until it is asked to end.
func host() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	nc, err := nats.Connect(os.Getenv("NATS_URL"), nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	return flow.Serve(ctx, nc, flow.Program(os.Getenv("CONFORMANCE_PROGRAM"), func(run *flow.Run, in script) (any, error) {
		p := &player{nc: nc, probe: in.Probe, seen: []any{}}
		for _, o := range in.Script {
			got, err := p.play(run, o)
			if err != nil {
				return nil, err
			}
			p.seen = append(p.seen, got)
		}
		return map[string]any{"results": p.seen}, nil
	}))
}

// player plays a script.
type player struct {
	nc    *nats.Conn
	probe string
	seen  []any
}

// ask makes the function of a step.
func (p *player) ask(run *flow.Run, kind drover.EntryKind, o op) func(context.Context) (json.RawMessage, error) {
	q := map[string]any{"run_id": run.Info().ID, "kind": kind, "id": o.ID}
	if o.Tell {
		q["seen"] = p.seen
	}
	return func(context.Context) (json.RawMessage, error) {
		data, err := json.Marshal(q)
		if err != nil {
			return nil, err
		}
		m, err := p.nc.Request(p.probe, data, 2*time.Minute)
		if err != nil {
			return nil, err
		}
		var a told
		if err := json.Unmarshal(m.Data, &a); err != nil || a.Error == nil {
			return a.Output, err
		}
		if a.Error.Permanent {
			return nil, flow.Fatal(a.Error)
		}
		return nil, a.Error
	}
}

func (p *player) play(run *flow.Run, o op) (any, error) {
	got, err := p.do(run, o)
	if err != nil && o.Catch {
		return map[string]any{"error": drover.CodeOf(err, "")}, nil
	}
	return got, err
}

func (p *player) do(run *flow.Run, o op) (any, error) {
	switch o.Op {
	case "step":
		return p.step(run, o)
	case "sleep":
		return nil, run.Sleep(o.ID, time.Duration(o.For))
	case "wait":
		return p.wait(run, o).Get(run)
	case "call":
		return flow.Call[any](run, o.ID, o.Function, o.Input)
	case "run":
		return flow.Invoke[any](run, o.ID, flow.Definition(o.Definition), o.Input)
	case "now":
		return run.Now(), nil
	case "random":
		return run.Rand().Float64(), nil
	case "all":
		return p.all(run, o)
	case "race":
		return p.race(run, o)
	case "changed":
		list, results := o.Before, []any{}
		if os.Getenv("CONFORMANCE_CHANGED") != "" {
			list = o.After
		}
		for _, inner := range list {
			got, err := p.play(run, inner)
			if err != nil {
				return nil, err
			}
			results = append(results, got)
		}
		return results, nil
	case "fail":
		return nil, o.Error
	case "panic":
		panic(o.Message)
	case "again":
		return nil, run.ContinueAsNew(o.Input)
	}
	return nil, errors.New("no such operation: " + o.Op)
}

func (p *player) step(run *flow.Run, o op) (any, error) {
	var opts []flow.StepOption
	if o.Retry != nil {
		opts = append(opts, flow.Retry{Attempts: o.Retry.Attempts, Initial: time.Duration(o.Retry.Initial) * time.Millisecond})
	}
	if o.Compensate {
		undo := p.ask(run, drover.EntryUndo, o)
		opts = append(opts, flow.Compensate(func(ctx context.Context, _ json.RawMessage) error {
			_, err := undo(ctx)
			return err
		}))
	}
	return flow.Step(run, o.ID, p.ask(run, drover.EntryStep, o), opts...)
}

func (p *player) wait(run *flow.Run, o op) *flow.Future[any] {
	var opts []flow.Option
	if o.Timeout > 0 {
		opts = append(opts, flow.Timeout(o.Timeout))
	}
	return flow.StartWait[any](run, o.ID, o.Name, opts...)
}

func (p *player) all(run *flow.Run, o op) (any, error) {
	results := make([]any, len(o.Of))
	var branches []func(*flow.Run) error
	for i, inner := range o.Of {
		branches = append(branches, func(run *flow.Run) (err error) {
			results[i], err = p.play(run, inner)
			return err
		})
	}
	return results, flow.Parallel(run, flow.ParallelOptions{}, branches...)
}

func (p *player) race(run *flow.Run, o op) (any, error) {
	var waits []*flow.Future[any]
	var list []flow.Awaitable
	for _, inner := range o.Of {
		w := p.wait(run, inner)
		waits, list = append(waits, w), append(list, w)
	}
	first, err := flow.Select(run, list...)
	if err != nil {
		return nil, err
	}
	got, err := waits[first].Get(run)
	return map[string]any{"first": first, "result": got}, err
}
