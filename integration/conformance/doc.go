// Package conformance holds a test for whatever serves programs: any process, in
// any language, that speaks the protocol of docs/protocol.md, "Programs". It
// serves the program that docs/conformance.md specifies, and the tests start runs
// of that on a real fleet, read along what the process says, and kill it.
//
//	go test ./integration/conformance -run Command -serve 'python3 serve.py'
//
// runs it against a process of one's own. Without -serve it runs against the SDK
// for Go and examples/program-node.
package conformance
