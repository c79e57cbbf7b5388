// Package client starts, feeds, stops and watches runs from Go.
//
// # Roles
//
// A [Client] asks the API that every worker of a fleet serves. It holds no
// state: any number of clients may be about the same run, and what one began
// another may wait for. Everything that it does can be done by plain NATS
// messages as well.
//
// # Promises
//
//   - An error of the fleet is a *drover.Error; compare its code with
//     errors.Is(err, drover.CodeNotFound). When the context ends first, the
//     error wraps that of the context.
//   - A request that nobody answers is asked again until Options.Patience has
//     passed, and the error has the code unavailable then. Asking again is
//     harmless: a start carries the id of its run, and a delivery an id, both
//     made up here where the caller gave none.
//   - [Client.Wait] and [Client.Run] are told the outcome when it happens, and
//     miss none: not when the run ends before they listen, nor when the
//     connection is lost for a while.
//   - [Client.Run] and [Client.Take] take the outcome: of that and of telling the
//     subscribers that are told only inline exactly one happens, and the error says
//     where it was the other. When their context ends, the run goes on.
//   - All methods may be called from any number of goroutines.
//
// # What may not be assumed
//
// That a call which gave an error has done nothing. Asking for the status of
// the run tells.
//
// [Client.Watch] shows the latest state, and not each one there was.
package client
