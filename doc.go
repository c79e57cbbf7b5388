// Package drover is the vocabulary of Drover: durable workflows on a fleet of
// workers that needs nothing but NATS JetStream.
//
// It holds what every other package, and every client, must agree on: the ids
// and their grammar, the [Definition] of a workflow with its parser and its
// validation, the requests that start and feed a run, the [Run] and its
// [Outcome], and errors whose codes survive the wire. It performs no I/O and
// imports nothing else of the module but internal/expression and
// internal/schema, which are as pure as it is.
//
// Everything here that travels is JSON. A reader ignores fields that it does
// not know, unless the doc of a type says otherwise; a [Definition] is the
// exception, an unknown key in it is an error.
package drover
