package function_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/droverhq/drover/function"
)

type page struct {
	URL string `json:"url"`
}

type words struct {
	Count int `json:"count"`
}

// A program that serves one function until it is interrupted.
func ExampleServe() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	nc, err := nats.Connect(nats.DefaultURL, nats.MaxReconnects(-1))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()

	count := function.New("words.count", func(_ context.Context, text string) (words, error) {
		return words{Count: len(strings.Fields(text))}, nil
	})
	if err := function.Serve(ctx, nc, count); err != nil {
		log.Fatal(err)
	}
}

// Errors say whether, and when, another attempt makes sense.
func ExamplePermanent() {
	fetch := function.New("page.fetch", func(ctx context.Context, p page) (string, error) {
		switch status := get(ctx, p.URL); status {
		case 200:
			return "the page", nil
		case 404:
			return "", function.Permanent(fmt.Errorf("there is no page at %s", p.URL))
		case 429:
			return "", function.RetryAfter(errors.New("asked too often"), time.Minute)
		default:
			return "", fmt.Errorf("status %d", status) // the retry policy of the node decides
		}
	})
	fetch.Concurrency = 4
	fmt.Println(fetch.Name)
	// Output: page.fetch
}

func get(context.Context, string) int { return 200 }
