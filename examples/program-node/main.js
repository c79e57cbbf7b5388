// The program "parcel": it packs what was ordered, waits until somebody has paid,
// and ships. See README.md.

import { connect } from "@nats-io/transport-node";
import { Failure, serve } from "./serve.js";

const nc = await connect({ servers: process.env.NATS_URL ?? "nats://127.0.0.1:4222", name: "parcel", maxReconnectAttempts: -1 });
const say = (text) => console.log(text);

async function parcel(run, { item }) {
  const box = await run.step("pack", async () => {
    say(`${run.id}: packing ${item}`);
    return { item, weight: 100 * item.length };
  }, {
    retry: { attempts: 3, initial: 100 },
    compensate: async (packed) => say(`${run.id}: unpacking ${packed.item}`),
  });
  const paid = await run.wait("paid", "paid", { timeout: "72h" });
  if (paid?.cents < box.weight) throw new Failure(`${paid.cents} cents are too few: it costs ${box.weight}`, { code: "too_few" });
  await run.sleep("rest", "1s"); // the process may be gone meanwhile
  await run.step("ship", async () => say(`${run.id}: shipping ${item}`));
  return { shipped: item, at: run.now };
}

const server = await serve(nc, "parcel", parcel);
say("parcel is served");
for (const signal of ["SIGINT", "SIGTERM"]) {
  process.once(signal, async () => {
    await server.close();
    await nc.drain();
  });
}
