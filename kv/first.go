package kv

import (
	"context"
	"slices"
)

// First gives what a watch, such as Fleet.WatchMembers, tells at first, which is
// all that there is by then. The watch has ended when it returns.
func First[T any](ctx context.Context, watch func(ctx context.Context, changed func([]T)) error) ([]T, error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var list []T
	told := false
	err := watch(watching, func(l []T) {
		if !told {
			list, told = slices.Clone(l), true
		}
		stop()
	})
	if told {
		return list, nil
	}
	return nil, err
}
