// Command callbacks is told the outcomes of runs, and keeps them in a file, each
// once. README.md, in this folder, tells what to try with it.
//
//	go run ./examples/callbacks subject parcels.done
//	go run ./examples/callbacks batch parcels.batch
//	go run ./examples/callbacks -secrets examples/callbacks/secrets.yaml url 127.0.0.1:8090
//
// It connects to the server that NATS_URL names, or to the one of drover dev.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/nats-io/nats.go"
)

func main() {
	log.SetFlags(0)
	file := flag.String("file", "examples/callbacks/told.jsonl", "where outcomes are kept")
	count := flag.Int("count", 0, "end after so many; 0: never")
	refuse := flag.Bool("refuse", false, "play a subscriber that wants no outcome")
	secrets := flag.String("secrets", "", "file with the secrets of webhooks")
	flag.Parse()
	if flag.NArg() != 2 {
		log.Fatal("say who is to be told: subject SUBJECT, batch SUBJECT, or url HOST:PORT")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := openStore(*file)
	if err != nil {
		log.Fatal(err)
	}
	s.refuse, s.left, s.enough = *refuse, *count, stop
	switch how, where := flag.Arg(0), flag.Arg(1); how {
	case "subject":
		err = subscribe(ctx, where, s.one)
	case "batch":
		err = subscribe(ctx, where, s.many)
	case "url":
		err = serve(ctx, where, *secrets, s)
	default:
		err = errors.New(how + " is neither subject nor batch nor url")
	}
	if err := errors.Join(err, s.close()); err != nil {
		log.Fatal(err)
	}
}

// subscribe has a handler told of outcomes until ctx ends. Instances that listen
// to one subject share what comes, as they are one queue group.
func subscribe(ctx context.Context, subject string, handler nats.MsgHandler) error {
	over := make(chan struct{})
	nc, err := nats.Connect(cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL), nats.Name("callbacks"),
		nats.MaxReconnects(-1), nats.ClosedHandler(func(*nats.Conn) { close(over) }))
	if err != nil {
		return err
	}
	defer nc.Close()
	if _, err := nc.QueueSubscribe(subject, "callbacks", handler); err != nil {
		return err
	}
	log.Printf("listening on %s", subject)
	<-ctx.Done()
	// What has come is answered before the connection is closed.
	if err := nc.Drain(); err != nil {
		return err
	}
	<-over
	return nil
}
