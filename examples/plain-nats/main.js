// Everything that a client does with Drover, with nothing but NATS. Each step
// prints a line of JSON.
//
//   drover dev
//   npm ci && NATS_URL=nats://127.0.0.1:4222 npm start

import { jetstream } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { Failure, serve } from "./function.js";

const definition = {
  name: "order",
  input_schema: { type: "object", required: ["items"] },
  nodes: {
    price: {
      call: "shop.price",
      fanout: { over: "run_input.items" },
      retry: { max_attempts: 3, initial: "100ms" },
      heartbeat: "30s",
    },
    approved: { wait: { name: "approve", timeout: "1h" }, depends_on: ["price"] },
    bill: {
      set: { with: { total: "${{ sum(nodes.price.output) }}", by: "${{ nodes.approved.output.by }}" } },
      depends_on: ["approved"],
    },
  },
  output: { from: "node:bill" },
};

const nc = await connect({ servers: process.env.NATS_URL ?? "nats://127.0.0.1:4222", name: "plain nats" });
const js = jetstream(nc);
const run = `order-${process.pid}-${Date.now()}`;
const show = (step, what) => console.log(JSON.stringify({ step, ...what }));

// request asks any worker: drover.api.<verb>. An error is an answer as well.
async function request(verb, payload = {}) {
  const m = await nc.request(`drover.api.${verb}`, JSON.stringify(payload), { timeout: 10_000 });
  const answer = m.json();
  if (m.headers?.get("Drover-Error")) throw Object.assign(new Error(), answer);
  return answer;
}

// command puts a command into the log of a run. The server's acknowledgement
// says that it is durable.
const command = (verb, payload) => js.publish(`drover.in.${run}.${verb}`, JSON.stringify(payload));

// next gives the first message on a subject that satisfies a condition.
function next(subject, so) {
  const sub = nc.subscribe(subject);
  return (async () => {
    for await (const m of sub) if (await so(m)) return m;
  })();
}

// What can be asked, and with which payload, is in the service itself.
const info = (await nc.request("$SRV.INFO.drover", "", { timeout: 10_000 })).json();
const schema = JSON.parse(info.endpoints.find((e) => e.subject === "drover.api.start").metadata.request_schema);
show("schema", { start: Object.keys(schema.properties) });

// A definition that is wrong is refused with all of its problems at once.
try {
  await request("start", { definition: { nodes: { a: { cal: "x" }, b: { call: "y", timeout: "soon" } } } });
} catch (err) {
  show("refused", { code: err.code, problems: err.problems.map((p) => p.place) });
}

// A function. Its first attempt at tea fails, and asks to be made again soon.
const shop = await serve(nc, "shop.price", async (item, call) => {
  await call.progress({ looking_up: item });
  if (item === "tea" && call.attempt === 1) throw new Failure("the till is busy", { retry_after: "50ms" });
  return item.length;
});

// The outcome comes as a request, until there is a reply: the receipt.
const told = next(`shop.done.${run}`, (m) => m.respond("thanks"));

await request("definition.put", { definition });
const started = await command("start", {
  workflow: "order",
  input: { items: ["tea", "bread"] },
  notify: { subject: `shop.done.${run}` },
  tags: { shop: "north" },
});
show("started", { run, durable: started.seq > 0 });

// Events hint that a run has changed. Whoever must know asks, first of all
// once the subscription is there.
let status;
const look = async () => (status = (await request("status", { run_id: run })).run).status === "waiting";
const waits = next(`drover.event.${run}`, look);
await nc.flush();
if (!(await look().catch(() => false))) await waits;
const price = status.nodes.find((n) => n.id === "price");
show("waiting", { items: price.items.counts });
show("why", { reasons: (await request("why", { run_id: run })).reasons.map((r) => `${r.waiting} ${r.on}`) });

// A command that cannot be folded is a dead letter.
const buried = next("drover.dead.>", (m) => m.json().run_id === run);
await nc.flush();
await command("dance", {});
const letter = (await buried).json();
show("dead", { verb: letter.verb, code: letter.error.code });

// So is a result that nobody asked for: the right to publish forges nothing.
const forged = next("drover.dead.>", (m) => m.json().run_id === run);
await nc.flush();
await command("result", { call: `${run}/price#0@1`, token: "guess", output: 0 });
show("forged", { code: (await forged).json().error.code });

await command("deliver", { name: "approve", payload: { by: "Grace" }, id: "mail-17" });
const outcome = (await told).json();
show("outcome", { status: outcome.status, result: outcome.result, delivery: outcome.delivery_id });

show("result", { output: (await request("result", { run_id: run, node: "price", item: 1 })).output });
show("list", { runs: (await request("list", { tags: { shop: "north" }, limit: 1 })).runs.map((r) => [r.run_id === run, r.status]) });

await shop.close();
await nc.drain();
