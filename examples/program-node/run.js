// The body of one run, executed along its journal: docs/protocol.md, "Programs",
// "The journal". Nothing here sees the network.

import { createHash } from "node:crypto";

// Failure is an error that fails a step, or the run. Any other error that leaves
// a body is a bug in it.
export class Failure extends Error {
  // options: code, permanent (no further attempt of the step), retry_after ("30s")
  constructor(message, options = {}) {
    super(message);
    Object.assign(this, { code: "failed" }, options);
  }
}

const kinds = ["wait", "sleep", "call", "request", "http", "agent", "run", "release"];
const kindOf = (step) => kinds.find((kind) => kind in step);
const wire = ({ code, message, permanent, retry_after }) => ({
  code: typeof code === "string" && code ? code : "failed", message: message || "it failed", permanent, retry_after,
});
const thrown = (e) => new Failure(e.message, e);

// Run is what a body gets. Outside of the functions of its steps a body awaits
// nothing but what its Run gave, and uses no other clock and no other chance: so
// it goes the same way in every drive.
export class Run {
  #used = new Set(); // ids
  #issued = []; // nodes, cancels and values that the journal does not have yet, oldest first
  #nodes = new Map(); // by id, that are not over
  #work = new Map(); // steps and undos, by kind and id, that are not over
  #undo = []; // what can be undone, oldest first
  #queue = []; // records to send
  #abort = new AbortController();
  #stopping = null;
  #broken = null; // a bug in the body: the error, and what goes on once the journal has it
  #failing = null; // and the journal has it: what was done is undone
  #running = 0;
  #seed;
  #draws = 0;

  constructor(request, { input, records, entries, journal = [], last }, body) {
    this.id = request.run_id;
    this.now = request.started_at; // the time of the last entry that the body was given
    this.journal = journal; // entries that it was not given yet
    this.have = entries;
    this.at = records;
    this.end = null; // how the drive ends
    this.last = last; // if the body breaks now, it is not driven again
    this.hint = 0; // how many entries there are said to be
    this.wake = () => {};
    this.#seed = request.seed;
    this.#main(body, input).then((end) => (this.end ??= end));
  }

  // step does something in this process, and gives its output in every drive.
  // work gets {signal, attempt}. options: retry {attempts, initial, factor, max},
  // in milliseconds; compensate(output), which undoes the step if the run fails.
  async step(id, work, { retry, compensate } = {}) {
    const output = await this.#do("step", id, work, retry);
    if (compensate) this.#undo.push({ id, work: () => compensate(output), retry });
    return output;
  }

  // node asks for something outside of this process: a node, as a definition has it.
  node(id, step, input) {
    return this.#ask(id, (op) => {
      this.#nodes.set(id, op);
      this.#issue({ kind: "node", id, step, input });
    });
  }

  sleep(id, duration) { return this.node(id, { sleep: duration }); }
  wait(id, name, options) { return this.node(id, { wait: { name, ...options } }); }
  call(id, name, input, options) { return this.node(id, { call: name, ...options }, input); }

  // cancel has the body not wait for a node any more.
  cancel(id, why = thrown({ code: "stopped", message: `nobody waits for ${id}` })) {
    const op = this.#nodes.get(id);
    if (!op) return;
    this.#nodes.delete(id);
    this.#issue({ kind: "cancel", id });
    op.reject(why);
  }

  // value gives the value that it had when the body first came by here.
  value(id, output) {
    return this.#ask(id, (op) => this.#issue({ kind: "value", id, output }, op));
  }

  // random is from 0 to 1, and the same in every drive.
  random() {
    const hash = createHash("sha256").update(`${this.#seed}/${this.#draws++}`).digest();
    return hash.readUIntBE(0, 6) / 2 ** 48;
  }

  // again gives what a body throws to begin anew with another input.
  again(input) { return { again: input ?? null }; }

  // ask gives the promise of one thing that the body asks for.
  #ask(id, then, undoing = false) {
    const promise = new Promise((resolve, reject) => {
      if (this.#stopping && !undoing) return reject(this.#stopping);
      if (!undoing && this.#used.has(id)) return reject(new Failure(`id ${id} is used twice`, { code: "conflict" }));
      this.#used.add(id);
      then({ resolve, reject });
    });
    promise.catch(() => {}); // the body may look at it later
    return promise;
  }

  #do(kind, id, work, retry) {
    return this.#ask(id, (op) => this.#work.set(`${kind} ${id}`, { kind, id, work, retry, attempt: 1, state: "due", ...op }), kind === "undo");
  }

  #issue(entry, op) { this.#issued.push({ entry, op, sent: false }); }

  async #main(body, input) {
    try {
      await null; // whoever made the Run has it first
      const result = (await body(this, input)) ?? null;
      if (!this.#failing) return { status: "completed", result };
    } catch (err) {
      if (!this.#failing && err && "again" in Object(err)) return { status: "again", input: err.again };
      if (!this.#failing && err instanceof Failure) return this.#failed(wire(err));
      if (!this.#failing) await this.#breaks(err);
    }
    return this.#failed({ ...this.#failing });
  }

  // breaks waits until the journal has a bug of the body, as it has where the body is
  // not driven again. Else the drive ends, and this with it.
  #breaks(err) {
    const error = { code: "panic", message: String(err?.message ?? err), stack: String(err?.stack ?? "").slice(0, 8000) };
    return new Promise((resolve) => (this.#broken = { error, resolve, sent: false }));
  }

  // failed undoes what was done, newest first.
  async #failed(error) {
    const some = this.#undo.length > 0;
    const bad = [];
    for (const { id, work, retry } of this.#undo.reverse()) {
      await this.#do("undo", id, work, retry).catch((err) => bad.push(`${id}: ${err.message}`));
    }
    if (bad.length > 0) error.message += `; and what it did could not be undone: ${bad.join(", ")}`;
    const status = bad.length > 0 ? "compensation_failed" : some ? "compensated" : this.#stopping && !this.#failing ? "cancelled" : "failed";
    return { status, error };
  }

  // settled returns when the body has gone as far as it can.
  settled() { return new Promise(setImmediate); }

  // drop forgets the body. Steps that run should end.
  drop() {
    this.end = { status: "dropped" };
    this.#abort.abort();
  }

  learn(entries = []) {
    for (const e of entries) if (e.n === this.have + 1) this.have = this.journal.push(e) && e.n;
  }

  // consume gives the body the next entry.
  consume() {
    const e = this.journal.shift();
    this.now = e.at ?? this.now;
    const over = (map, key, op) => {
      map.delete(key);
      if (e.error) op.reject(thrown(e.error));
      else op.resolve(e.output ?? null);
    };
    switch (e.kind) {
      case "step": case "undo": {
        const op = this.#work.get(`${e.kind} ${e.id}`);
        if (!op || op.state === "pausing") return this.#misfit(e);
        return over(this.#work, `${e.kind} ${e.id}`, op);
      }
      case "attempt": {
        const op = this.#work.get(`step ${e.id}`) ?? this.#work.get(`undo ${e.id}`);
        if (!op || op.state === "pausing" || op.attempt !== e.attempt) return this.#misfit(e);
        op.state = "pausing";
        if (this.#stopping && op.kind === "step") over(this.#work, `step ${e.id}`, op);
        return;
      }
      case "ended": {
        if (!e.attempt) return this.#nodes.has(e.id) && over(this.#nodes, e.id, this.#nodes.get(e.id));
        const op = this.#work.get(`step ${e.id}`) ?? this.#work.get(`undo ${e.id}`);
        if (op?.state !== "pausing") return; // of a step that nobody waits for
        if (e.error && op.kind === "step") return over(this.#work, `step ${e.id}`, op); // the run was stopped
        return Object.assign(op, { state: "due", attempt: e.attempt });
      }
      case "node": case "value": case "cancel": {
        const { entry, op } = this.#issued.shift() ?? {};
        if (entry?.kind !== e.kind || entry.id !== e.id || (e.kind === "node" && kindOf(entry.step) !== kindOf(e.step))) {
          return this.#misfit(e, entry);
        }
        return op?.resolve(e.output ?? null);
      }
      case "stop":
        this.#stopping = thrown({ code: "stopped", message: `the run was stopped: ${e.id}` });
        this.#abort.abort(this.#stopping);
        // What is in the journal ends by itself. What is not, nobody wants any more.
        for (const { entry } of [...this.#issued]) if (entry.kind === "node") this.cancel(entry.id, this.#stopping);
        return;
      case "panic":
        if (this.end) return this.#misfit(e);
        this.#failing = e.error;
        if (this.#broken) return this.#broken.resolve();
        // It does not come again in this drive, and counts all the same.
        this.#stopping ??= thrown(e.error);
        this.#abort.abort(this.#stopping);
        for (const id of [...this.#nodes.keys()]) this.cancel(id, this.#stopping);
        for (const op of [...this.#work.values()]) if (op.state === "pausing" && op.kind === "step") over(this.#work, `step ${op.id}`, op);
        return;
      default:
        return this.#misfit(e);
    }
  }

  // misfit ends the drive: nobody may guess what the body meant.
  #misfit(e, entry = this.#issued[0]?.entry) {
    const name = ({ kind, id, step }) => `${kind} "${id}"${step ? ` (${kindOf(step)})` : ""}`;
    const asked = [...(entry ? [entry] : []), ...this.#work.values()].map(name).join(", ");
    const message = `entry ${e.n} of the journal is ${name(e)}, and the body asks for ${asked || "nothing"}`;
    this.end = { status: "blocked", error: { code: "conflict", message } };
    this.journal = [];
    this.#queue = [];
  }

  // begin sets off the steps that are due, at the end of the journal.
  begin() {
    for (const op of this.#work.values()) {
      if (op.state !== "due" || this.end?.status === "blocked") continue;
      op.state = "running";
      if (this.#stopping && op.kind === "step") this.#queue.push({ kind: "step", id: op.id, attempt: op.attempt, error: wire(this.#stopping) });
      else this.#perform(op);
    }
    for (const o of this.#issued) {
      if (!o.sent) this.#queue.push(o.entry);
      o.sent = true;
    }
  }

  async #perform(op) {
    this.#running++;
    const started_at = new Date().toISOString();
    const record = { kind: op.kind, id: op.id, attempt: op.attempt, started_at };
    try {
      record.output = (await op.work({ attempt: op.attempt, signal: op.kind === "step" ? this.#abort.signal : undefined })) ?? null;
    } catch (err) {
      record.error = wire(err instanceof Error ? err : new Error(String(err)));
      const { attempts = op.retry ? 3 : 1, initial = 1_000, factor = 2, max = 60_000 } = op.retry ?? {};
      if (!record.error.permanent && op.attempt < attempts && !(this.#stopping && op.kind === "step")) {
        record.kind = "attempt";
        record.pause = record.error.retry_after ?? `${Math.ceil(Math.min(initial * factor ** (op.attempt - 1), max))}ms`;
      }
    }
    this.#running--;
    this.#queue.push(record);
    this.wake();
  }

  // take gives what is to be said now: records, and the end of the drive where
  // nothing is left to do but to wait: no step runs, and what is recorded now gives
  // the body nothing to go on with.
  take() {
    const broken = this.#failing ? null : this.#broken;
    if (broken && !broken.sent && this.last) {
      broken.sent = true;
      this.#queue.push({ kind: "panic", error: broken.error });
    } else if (broken && !broken.sent) this.end ??= { status: "panicked", error: broken.error };
    const records = this.#queue.splice(0);
    const works = this.#running > 0 || records.some((r) => ["step", "undo", "value", "panic"].includes(r.kind));
    return { records, end: this.end?.status === "blocked" || !works ? (this.end ?? { status: "waiting" }) : undefined };
  }
}
