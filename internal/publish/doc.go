// Package publish sends messages to JetStream and calls back with their acks,
// many in flight at once and with no goroutine for any of them.
//
// # Roles
//
// A [Publisher] has one subscription, for an inbox of its own, and one
// goroutine. Every message gets a number, and the number is the last token of
// its reply subject; the goroutine matches acks to callbacks by it, and gives
// up on messages whose ack did not come in time.
//
// With Options.Group, messages to one stream go in turns: while some are in
// flight, others wait in a queue, and all that waits is sent when the last ack
// has come, as one atomic batch where it is enough for that to be faster. A lone
// message never waits. A batch that the server refuses, be it for one wrong
// revision, is sent again one by one, so that each message has the answer that it
// would have had without the batch.
//
// # Promises
//
//   - Every callback is called exactly once: with an ack, or with an error.
//   - Callbacks run one after the other, on the goroutine of the publisher, and
//     never inside [Publisher.Publish] but after Close.
//   - Messages on one subject are stored in the order in which they were given,
//     while the connection holds. With Options.Group this is so for all messages
//     to a stream.
//   - An ack means that the server stored the message, as durably as the stream
//     is set up.
//
// # What may not be assumed
//
// An error that is drover.CodeUnavailable says nothing about the message: it may
// be stored, or be stored later, as when the connection broke or the ack was
// lost; of a batch this is so for all its messages. Acks may come in another order than messages were sent in.
//
// What is stored of a batch has the headers of the batch, so a message that is
// read must not be published again as it is.
//
// A callback must not block: not on a lock that is held while publishing, not
// on a channel that its reader drains between two publishes, and not on
// Publish itself, which waits for room that only this goroutine can make:
// [Publisher.PublishNow] is for callbacks.
package publish
