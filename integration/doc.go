// Package integration holds the black-box tests: real servers, the real binary
// as processes of its own, kill -9, and nothing of the inside. What they know of
// Drover is what docs/protocol.md tells everyone, so they import only what a
// user may import, and servers for tests.
//
// Every process that a test starts is waited for, and killed if it is left over.
// Nothing sleeps: a test waits for a line, a message, or an answer.
//
//	go test ./integration -run TestCrashAnywhere -seed 4711 -v
//
// repeats the choices of a crash test; what they meet depends on the machine.
package integration
