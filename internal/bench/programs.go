package bench

import (
	"context"
	"strconv"

	"github.com/droverhq/drover/flow"
)

// drives is how many programs a server drives at the same time.
const drives = 256

// programs starts the servers of the program that does nothing, in steps.
func (f *fleet) programs(ctx context.Context) error {
	for i := range f.opts.Functions {
		nc, err := f.connect("programs")
		if err != nil {
			return err
		}
		opts := flow.Options{Prefix: f.names.Prefix(), Instance: "bench-" + strconv.Itoa(i), Concurrency: drives}
		s, err := flow.NewServer(nc, opts, flow.Program(noop, f.steps))
		if err != nil {
			return err
		}
		f.start(ctx, "the server of programs", s.Run)
		if err := f.await(ctx, s.Ready()); err != nil {
			return err
		}
	}
	return nil
}

// steps is a body of so many steps, one after the other.
func (f *fleet) steps(run *flow.Run, n int) (sum int, err error) {
	for i := range n {
		one, err := flow.Step(run, "s"+strconv.Itoa(i), func(context.Context) (int, error) {
			f.calls.Add(1)
			return 1, nil
		})
		if err != nil {
			return 0, err
		}
		sum += one
	}
	return sum, nil
}
