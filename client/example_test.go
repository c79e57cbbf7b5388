package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover"
	"github.com/droverhq/drover/client"
)

// Start a registered workflow and wait for its outcome.
func ExampleClient_Run() {
	nc, err := nats.Connect(nats.DefaultURL, nats.MaxReconnects(-1))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	c, err := client.New(nc, client.Options{})
	if err != nil {
		log.Fatal(err)
	}

	outcome, err := c.Run(context.Background(), drover.StartRequest{
		Workflow:       "naming",
		Input:          json.RawMessage(`{"topic": "herding"}`),
		IdempotencyKey: "order-17", // the same order is the same run
	})
	switch {
	case errors.Is(err, drover.CodeNotFound):
		log.Fatal("register the workflow first: ", err)
	case err != nil:
		log.Fatal(err)
	case outcome.Status == drover.StatusCompleted:
		fmt.Printf("%s\n", outcome.Result)
	default:
		fmt.Println(outcome.Status, outcome.Error)
	}
}
