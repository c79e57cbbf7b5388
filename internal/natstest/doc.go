// Package natstest gives tests real NATS servers with JetStream.
//
// [New] boots a server of its own for one test, in the process of the test,
// in milliseconds. It keeps its store in the test's temporary directory, and
// opens no socket unless [Listen] is given; connections then go through pipes.
// [Server.Restart] boots it again over the same store, and connections that
// were made by [Server.Connect] find the new server by themselves.
//
// [Bubble] runs a test with a server under the fake clock of testing/synctest:
// a schedule of 36 hours takes seconds, and time stands still while anything
// works. No sockets, no cluster and no parallel tests in a process that uses
// it. [Clock] is that clock without a server. [NewCluster] boots servers that listen on the loopback and share a
// replicated JetStream.
//
// Whatever these make is shut down, and waited for, when the test ends, so that
// a test may check for leaked goroutines after it.
package natstest
