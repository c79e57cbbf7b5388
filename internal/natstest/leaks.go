package natstest

import (
	"testing"

	"go.uber.org/goleak"
)

// VerifyTestMain runs a package's tests, and fails them when goroutines are left
// after it. Servers that shut down while they make a store forget to close that
// one: its loops are the server's own leak, and no finding.
func VerifyTestMain(m *testing.M, opts ...goleak.Option) {
	const server = "github.com/nats-io/nats-server/v2/server"
	goleak.VerifyTestMain(m, append(opts,
		goleak.IgnoreAnyFunction(server+"/ats.Register.func1"),
		goleak.IgnoreAnyFunction(server+".(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreAnyFunction(server+".(*msgBlock).flushLoop"),
	)...)
}
