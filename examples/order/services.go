package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/function"
)

// The services are three lines each here. Real ones take the id of the order as
// an idempotency key: a step is repeated where its process was killed before its
// result was durable.

func reserve(_ context.Context, order, item string, count int) (string, error) {
	if item == "" {
		return "", flow.Fatal(errors.New("the order names no item"))
	}
	fmt.Printf("%s: took %d × %s off the shelf\n", order, count, item)
	return "shelf:" + order, nil
}

func putBack(_ context.Context, reservation string) error {
	fmt.Printf("%s: put back\n", reservation)
	return nil
}

func charge(_ context.Context, order string, total int) (string, error) {
	fmt.Printf("%s: charged %d\n", order, total)
	return "charge:" + order, nil
}

func refund(_ context.Context, charge string) error {
	fmt.Printf("%s: refunded\n", charge)
	return nil
}

// book is a function of the fleet: it could as well be another process, in
// another language.
func book(ctx context.Context, boxes []string) (string, error) {
	for _, box := range boxes {
		if strings.Contains(box, "piano") {
			return "", function.Permanent(fmt.Errorf("no carrier takes %s", box))
		}
	}
	return "track:" + string(function.Info(ctx).ID.Run), nil
}
