// Command order serves a program that takes orders in a furniture shop: a saga
// that takes goods and money, asks a person about large sums, has a child send
// the parcel, and undoes what it did where something fails. README.md says how to
// try it.
//
// It connects to the server that NATS_URL names, or to the one of drover dev. Any
// number of these processes share the orders.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover/flow"
	"github.com/droverhq/drover/function"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL)); err != nil {
		log.Fatal(err)
	}
}

// serve serves the programs, and the function that they call.
func serve(ctx context.Context, url string) error {
	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	programs, err := flow.NewServer(nc, flow.Options{}, order, parcel)
	if err != nil {
		return err
	}
	functions, err := function.NewServer(nc, function.Options{}, function.New("shipping.book", book))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 2)
	go func() { ended <- programs.Run(ctx) }()  // both are waited for below
	go func() { ended <- functions.Run(ctx) }() //
	go func() {
		select {
		case <-programs.Ready():
			fmt.Println("serving order and parcel")
		case <-ctx.Done():
		}
	}()
	first := <-ended
	stop()
	return cmp.Or(first, <-ended)
}
