// Is told outcomes by NATS requests, and replies with a receipt.
//
//   node subject.js SUBJECT [how many, before it ends]

import { connect, headers } from "@nats-io/transport-node";
import { open } from "./store.js";

const [subject, count] = process.argv.slice(2);
const nc = await connect({ servers: process.env.NATS_URL ?? "nats://127.0.0.1:4222" });
// Instances with the same queue share what comes.
const told = nc.subscribe(subject, { queue: "callbacks" });
const store = open(Number(count), () => told.drain());
console.error(`listening on ${subject}`);

for await (const m of told) {
  try {
    m.respond(store.keep(m.json()));
  } catch (err) {
    // A reply with this header is no receipt: the outcome comes again.
    const failed = headers();
    failed.set("Drover-Error", "failed");
    m.respond(JSON.stringify({ code: "failed", message: err.message }), { headers: failed });
  }
}
store.close();
await nc.drain();
