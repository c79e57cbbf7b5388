// The program that docs/conformance.md specifies, for the conformance test.

import { connect } from "@nats-io/transport-node";
import { Failure, serve } from "./serve.js";

const nc = await connect({ servers: process.env.NATS_URL, maxReconnectAttempts: -1 });

async function body(run, input) {
  const seen = [];
  // ask asks the test what a step is to give.
  const ask = (kind, { id, tell }) => async () => {
    const question = { run_id: run.id, kind, id, seen: tell ? seen : undefined };
    const m = await nc.request(input.probe, JSON.stringify(question), { timeout: 120_000 });
    const { output, error } = m.json();
    if (error) throw new Failure(error.message, error);
    return output;
  };
  const ops = {
    step: (op) =>
      run.step(op.id, ask("step", op), {
        retry: op.retry && { attempts: op.retry.attempts, initial: op.retry.initial_ms },
        compensate: op.compensate ? ask("undo", op) : undefined,
      }),
    sleep: (op) => run.sleep(op.id, op.for),
    wait: (op) => run.wait(op.id, op.name, { timeout: op.timeout }),
    call: (op) => run.call(op.id, op.function, op.input),
    run: (op) => run.node(op.id, { run: { definition: op.definition } }, op.input),
    now: () => run.now,
    random: () => run.random(),
    all: (op) => Promise.all(op.of.map(perform)),
    race: async (op) => {
      const [first, result] = await Promise.race(op.of.map((o, i) => perform(o).then((r) => [i, r])));
      for (const [i, { id }] of op.of.entries()) if (i !== first) run.cancel(id);
      return { first, result };
    },
    changed: async (op) => {
      const results = [];
      for (const o of process.env.CONFORMANCE_CHANGED ? op.after : op.before) results.push(await perform(o));
      return results;
    },
    fail: (op) => { throw new Failure(op.error.message, op.error); },
    panic: (op) => { throw new TypeError(op.message); },
    again: (op) => { throw run.again(op.input); },
  };
  async function perform(op) {
    if (!op.catch) return ops[op.op](op);
    try {
      return await ops[op.op](op);
    } catch (err) {
      return { error: err.code };
    }
  }
  for (const op of input.script) seen.push((await perform(op)) ?? null);
  return { results: seen };
}

const server = await serve(nc, process.env.CONFORMANCE_PROGRAM ?? "conformance", body);
console.log("conformance is served");
process.once("SIGTERM", async () => {
  await server.close();
  await nc.drain();
});
