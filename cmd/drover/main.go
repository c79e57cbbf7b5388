// Command drover is Drover: a worker of a fleet, a server with a worker for
// development, and the command line that starts and watches runs.
//
// Standard output carries results and nothing else, so that it can be piped;
// progress, warnings, logs and errors go to standard error. Every flag that
// says how to reach the server can also be given by the environment, spelled
// like the flag: DROVER_NATS for --nats.
//
// The exit status says how it went: 0 completed, 1 failed, 2 wrong usage, or what
// is asked for is invalid or too large, 3 cancelled, 4 compensated, 5 a
// compensation failed, 130 killed by a second signal.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(execute(context.Background(), os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}
