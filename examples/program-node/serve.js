// A process that serves a program of Drover, by the protocol alone:
// docs/protocol.md, "Programs". To copy it is the way to use it.

import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { AckPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { createInbox, headers, nanos } from "@nats-io/transport-node";
import { Failure, Run } from "./run.js";

export { Failure };

const working = 3_000; // ms between two words to the queue that a drive goes on
const beat = 8_000; // and to the run

// What can never be taken: an error of what was asked for, and not of the drive.
const never = ["invalid_request", "invalid_definition", "invalid_id", "not_found", "too_large"];

// Refused is an error that Drover answers.
class Refused extends Error {
  constructor({ code, message }) {
    super(message);
    this.code = code;
  }
}

// serve drives the runs of one program. body(run, input) gives the result of a
// run, or a promise of it. close() takes no more drives, and waits for those that
// are under way; others go on from the journal.
export async function serve(nc, name, body, { prefix = "drover", concurrency = 16 } = {}) {
  const stream = `${prefix.toUpperCase()}_CALLS`;
  const durable = `fn_program=${name}`;
  const jsm = await jetstreamManager(nc);
  // All processes share the consumer, and another one may have made it.
  await jsm.consumers.info(stream, durable).catch(() =>
    jsm.consumers.add(stream, {
      durable_name: durable,
      filter_subject: `${prefix}.call.*.program.${name}`,
      ack_policy: AckPolicy.Explicit,
      ack_wait: nanos(10_000),
      max_deliver: -1,
      max_ack_pending: 10_000,
    }));
  const consumer = await jetstream(nc).consumers.get(stream, durable);
  const server = { nc, js: jetstream(nc), prefix, body, instance: `node-${process.pid}-${randomBytes(4).toString("hex")}`, runs: new Map() };
  const nudges = nc.subscribe(`${prefix}.drive.${server.instance}`, {
    callback: (_, m) => {
      const { run_id, entries } = m.json();
      const run = server.runs.get(run_id);
      if (run) run.hint = entries;
      run?.wake();
    },
  });
  const pulls = new Set();
  let open = true;
  async function lane() {
    while (open) {
      const pull = await consumer.fetch({ max_messages: 1, expires: 30_000 });
      pulls.add(pull);
      for await (const m of pull) await take(server, m);
      pulls.delete(pull);
    }
  }
  const lanes = Array.from({ length: concurrency }, lane);
  return {
    async close() {
      open = false;
      for (const pull of pulls) await pull.close();
      await Promise.all(lanes);
      nudges.unsubscribe();
    },
  };
}

// take drives a run as a message of the queue asks for.
async function take(server, m) {
  const works = setInterval(() => m.working(), working);
  const run = m.headers?.get("Drover-Run");
  try {
    const request = m.json();
    await drive(server, request, { fence: m.info.deliveryCount + 1, token: m.headers?.get("Drover-Token") });
    m.ack();
  } catch (err) {
    // Nothing is acknowledged: the drive is handed out again, here or elsewhere.
    console.error(`a drive of run ${run} will come again: ${err.stack}`);
  } finally {
    clearInterval(works);
  }
}

// drive executes the body, anew from the journal as often as that has moved on,
// until the drive ends or another process has it.
async function drive(server, request, { fence, token }) {
  const said = { drive: request.drive, fence, token, instance: server.instance };
  let doubtful = request.partial || fence > 2; // somebody else may have recorded, or may yet
  try {
    for (;;) {
      let run;
      try {
        const known = doubtful ? await claim(server, await journal(server, request.run_id, 1), said) : request;
        run = new Run(request, known, server.body);
        server.runs.set(request.run_id, run);
        return await along(server, run, said);
      } catch (err) {
        if (err.code !== "stale") throw err;
      } finally {
        run?.drop();
        if (run && server.runs.get(request.run_id) === run) server.runs.delete(request.run_id);
      }
      doubtful = true;
      await sleep(200); // what is read of the run may be a moment behind
    }
  } catch (err) {
    if (!(err instanceof Refused)) throw err; // else the drive is not ours
  }
}

// claim takes the drive from whoever else may have it, before anything is done that
// he may have done: of his nothing is recorded any more. It gives what is known.
async function claim(server, known, said) {
  const { run_id, records: at, entries: have } = known;
  const reply = await record(server, run_id, { ...said, at, have, records: [] });
  if (!reply.driving) throw new Refused({ code: "fenced", message: "the drive is over" });
  if (reply.records !== at) throw new Refused({ code: "stale", message: "the journal has moved on" });
  const more = reply.partial ? (await rest(server, run_id, have + 1)).journal : (reply.new ?? []);
  return { ...known, last: reply.last, entries: have + more.length, journal: [...known.journal, ...more] };
}

// along has the body and the journal go on with each other.
async function along(server, run, said) {
  for (;;) {
    await run.settled();
    if (run.journal.length > 0) {
      run.consume();
      continue;
    }
    run.begin();
    const { records, end } = run.take();
    if (records.length === 0 && !end && run.hint <= run.have && !(await nap(run))) continue;
    const { at, have } = run;
    const reply = await record(server, run.id, { ...said, at, have, records, end });
    if (!reply.driving) return; // parked, or over
    if (reply.records !== at + records.length) throw new Refused({ code: "stale", message: "the journal has moved on" });
    run.at = reply.records;
    run.last = reply.last;
    run.hint = 0;
    run.learn(reply.partial ? (await rest(server, run.id, have + 1)).journal : reply.new);
  }
}

// nap waits for a step to end, for news, or until it is time for a heartbeat,
// where it gives true.
function nap(run) {
  return new Promise((resolve) => {
    const late = setTimeout(() => resolve(true), beat);
    run.wake = () => {
      clearTimeout(late);
      resolve(false);
    };
  });
}

// record publishes a record, until the run answers: repeats are harmless. What
// can never be taken fails the run.
async function record(server, run, command) {
  const { nc, js, prefix } = server;
  for (;;) {
    const inbox = createInbox(nc.options?.inboxPrefix);
    const answers = nc.subscribe(inbox, { max: 1 });
    const late = setTimeout(() => answers.unsubscribe(), 5_000);
    const h = headers();
    h.set("Drover-Reply", inbox);
    const answered = first(answers);
    answered.catch(() => {});
    try {
      await js.publish(`${prefix}.in.${run}.record`, JSON.stringify(command), { headers: h });
      return await answered;
    } catch (err) {
      if (never.includes(err.code) && command.records.length > 0) {
        const { code, message } = err;
        command = { ...command, records: [], end: { status: "failed", error: { code, message } } };
      } else if ((err instanceof Refused && err.code !== "unavailable") || nc.isClosed()) throw err;
      else await sleep(200);
    } finally {
      clearTimeout(late);
      answers.unsubscribe();
    }
  }
}

// first gives the first answer.
async function first(answers) {
  for await (const m of answers) return answer(m);
  throw new Error("nobody answered");
}

function answer(m) {
  if (m.headers?.get("Drover-Error")) throw new Refused(m.json());
  return m.json();
}

// rest reads what did not fit into an answer.
async function rest(server, run, from) {
  try {
    return await journal(server, run, from);
  } catch (err) {
    throw err instanceof Refused ? new Refused({ code: "stale", message: err.message }) : err;
  }
}

// journal reads a journal until all of it came: it comes in parts, of which any
// may be lost.
async function journal({ nc, prefix }, run, from) {
  for (;;) {
    const inbox = createInbox(nc.options?.inboxPrefix);
    const parts = nc.subscribe(inbox);
    const late = setTimeout(() => parts.unsubscribe(), 10_000);
    try {
      nc.publish(`${prefix}.api.journal`, JSON.stringify({ run_id: run, from }), { reply: inbox });
      let whole;
      for await (const m of parts) {
        const part = answer(m);
        whole ??= { ...part, journal: [] };
        whole.journal.push(...(part.journal ?? []));
        if (m.headers?.get("Drover-More")) continue;
        if (whole.journal.length === whole.entries - from + 1) return whole;
        break;
      }
      await sleep(200); // nobody answered, or a part was lost
    } catch (err) {
      if (!(err instanceof Refused) || err.code !== "unavailable" || nc.isClosed()) throw err;
      await sleep(200);
    } finally {
      clearTimeout(late);
      parts.unsubscribe();
    }
  }
}
