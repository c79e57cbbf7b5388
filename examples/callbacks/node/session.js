// Plays a function that starts a run and is told how it ended, by the protocol
// alone: reply_to. What names the session is the call, and no payload.
//
//   node session.js        serves one call of the function desk.ask

import { AckPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect, headers, nanos } from "@nats-io/transport-node";

const nc = await connect({ servers: process.env.NATS_URL ?? "nats://127.0.0.1:4222" });
const js = jetstream(nc);
const jsm = await jetstreamManager(nc);
await jsm.consumers.add("DROVER_CALLS", {
  durable_name: "fn_desk=ask",
  filter_subject: "drover.call.*.desk.ask",
  ack_policy: AckPolicy.Explicit,
  ack_wait: nanos(10_000),
  max_deliver: -1,
  max_ack_pending: 10_000,
});
const consumer = await js.consumers.get("DROVER_CALLS", "fn_desk=ask");
let call = null;
while (!call) call = await consumer.next({ expires: 30_000 });
const [id, token] = [call.headers.get("Drover-Call"), call.headers.get("Drover-Token")];

// The session of the call outlives it. Its name is wf_<run>_<node>@r<attempt>,
// as one token of a subject.
const [, run, node, attempt] = id.match(/^([^/]+)\/([^@]+)@(\d+)$/);
const session = Buffer.from(`wf_${run}_${node}@r${attempt}`).toString("base64url");
const told = nc.subscribe(`drover.session.call._${session}`, { max: 1 });

// While the call runs, its headers prove who asks.
const proof = headers();
proof.set("Drover-Call", id);
proof.set("Drover-Token", token);
const start = { run_id: `${run}-parcel`, workflow: "parcel", input: call.json(), reply_to: { template: "Your parcel:" } };
const started = (await nc.request("drover.api.start", JSON.stringify(start), { headers: proof, timeout: 10_000 })).json();
if (started.code) throw new Error(started.message);

await js.publish(`drover.in.${run}.result`, JSON.stringify({ call: id, token, output: { asked: started.run_id } }));
call.ack();

for await (const m of told) {
  const { id, text } = m.json();
  console.log(JSON.stringify({ id, text }));
  m.respond("heard"); // the receipt: it does not come again
}
await nc.drain();
