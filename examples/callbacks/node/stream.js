// Consumes outcomes from a stream of its own. The acknowledgement of the stream
// is the receipt, so that they are kept even while this program is away.
//
//   node stream.js SUBJECT [how many, before it ends]

import { AckPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { open } from "./store.js";

const stream = "PARCELS";
const [subject, count] = process.argv.slice(2);
const nc = await connect({ servers: process.env.NATS_URL ?? "nats://127.0.0.1:4222" });
const jsm = await jetstreamManager(nc);
// Both of these change nothing where they are there already. What was published
// to no stream was not delivered: it comes once there is one.
await jsm.streams.add({ name: stream, subjects: [subject] });
await jsm.consumers.add(stream, { durable_name: "kept", ack_policy: AckPolicy.Explicit });
const consumer = await jetstream(nc).consumers.get(stream, "kept");
const messages = await consumer.consume();
const store = open(Number(count), () => messages.stop());
console.error(`consuming ${subject}`);

for await (const m of messages) {
  try {
    store.keep(m.json());
    m.ack();
  } catch (err) {
    console.error(`${m.seq} will come again: ${err.message}`);
    m.nak(1_000);
  }
}
store.close();
await nc.drain();
