// A function of Drover, by the protocol alone: docs/protocol.md, "Functions".
// To copy it is the way to use it.

import { hostname } from "node:os";
import { AckPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { nanos } from "@nats-io/transport-node";

const working = 3_000; // ms between two words to the queue that a call goes on

// Failure is how a handler says more of an error than its message.
export class Failure extends Error {
  // options: code, permanent (no further attempt), retry_after ("30s")
  constructor(message, options = {}) {
    super(message);
    this.options = options;
  }
}

// serve performs the calls of one function, and gives what ends it: close()
// takes no more calls, waits for those that are under way, and returns.
//
// handler(input, call) gives the output, or a promise of it. call has id,
// attempt, signal (aborted when the call is not wanted any more) and
// progress(value), which a call with a heartbeat must use in time.
export async function serve(nc, name, handler, { prefix = "drover", concurrency = 4 } = {}) {
  const stream = `${prefix.toUpperCase()}_CALLS`;
  const consumer = await find(nc, stream, prefix, name);
  const js = jetstream(nc);
  const calls = new Map(); // by id: what aborts it
  const pulls = new Set();
  let open = true;

  // Calls that are not wanted any more. An empty body means all of a run.
  const cancels = nc.subscribe(`${prefix}.cancel.*.${name}`, {
    callback: (_, m) => {
      const run = m.subject.split(".")[2];
      for (const [id, abort] of calls) {
        if (m.string() === id || (m.string() === "" && id.startsWith(`${run}/`))) abort.abort();
      }
    },
  });

  // Each lane pulls one call when it can begin one, so that nothing waits here
  // that another instance could do.
  async function lane() {
    while (open) {
      const pull = await consumer.fetch({ max_messages: 1, expires: 30_000 });
      pulls.add(pull);
      for await (const m of pull) await perform(js, prefix, m, handler, calls);
      pulls.delete(pull);
    }
  }
  const lanes = Array.from({ length: concurrency }, lane);
  return {
    async close() {
      open = false;
      for (const pull of pulls) await pull.close();
      await Promise.all(lanes);
      cancels.unsubscribe();
    },
  };
}

// find gives the durable consumer that all instances of a function share.
async function find(nc, stream, prefix, name) {
  const durable = "fn_" + name.replaceAll(".", "=");
  const jsm = await jetstreamManager(nc);
  await jsm.consumers.add(stream, {
    durable_name: durable,
    filter_subject: `${prefix}.call.*.${name}`,
    ack_policy: AckPolicy.Explicit,
    ack_wait: nanos(10_000),
    max_deliver: -1,
    max_ack_pending: 10_000,
  });
  return jetstream(nc).consumers.get(stream, durable);
}

// perform does one call from beginning to end.
async function perform(js, prefix, m, handler, calls) {
  const header = (name) => m.headers?.get(`Drover-${name}`) ?? "";
  const id = header("Call");
  const answer = (end) =>
    js.publish(
      `${prefix}.in.${header("Run")}.result`,
      JSON.stringify({ call: id, token: header("Token"), instance: `${hostname()}-${process.pid}`, ...end }),
    );
  const abort = new AbortController();
  calls.set(id, abort);
  const beat = setInterval(() => m.working(), working);
  const late = header("Deadline") && setTimeout(() => abort.abort(), Date.parse(header("Deadline")) - Date.now());
  try {
    // The heartbeat is watched from the first progress on, so it comes at once.
    if (header("Heartbeat")) await answer({ progress: "begun" });
    const call = {
      id,
      attempt: Number(header("Attempt")),
      signal: abort.signal,
      progress: (value) => answer({ progress: value }),
    };
    const end = await ending(() => handler(m.json(), call));
    // The result is durable before the queue forgets the call. A call that was
    // cancelled has no result that anyone wants.
    if (!abort.signal.aborted) await answer(end);
    m.ack();
  } catch (err) {
    // Nothing is acknowledged: the call comes again, here or elsewhere.
    console.error(`call ${id} will come again: ${err.message}`);
  } finally {
    clearInterval(beat);
    clearTimeout(late);
    calls.delete(id);
  }
}

// ending gives the output or the error of a handler, as a result has it.
async function ending(handle) {
  try {
    return { output: (await handle()) ?? null };
  } catch (err) {
    return { error: { code: "failed", message: err.message || String(err), ...err.options } };
  }
}
