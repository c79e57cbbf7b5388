// Outcomes are kept in a file, a line for each. What is told at least once is
// kept exactly once: the delivery id says what is there already.

import { closeSync, fsyncSync, ftruncateSync, openSync, readFileSync, writeSync } from "node:fs";
import { fileURLToPath } from "node:url";

// open reads what is kept already, and calls enough once so many more are kept.
export function open(count = 0, enough = () => {}) {
  const name = process.env.FILE ?? fileURLToPath(new URL("../told.jsonl", import.meta.url));
  const file = openSync(name, "a+");
  const text = readFileSync(file);
  // A line that a crash cut off had no receipt, and comes again.
  let size = text.lastIndexOf("\n") + 1;
  ftruncateSync(file, size);
  const lines = text.subarray(0, size).toString().split("\n").filter(Boolean);
  const seen = new Set(lines.map((line) => JSON.parse(line).delivery_id));

  // keep gives the receipt of an outcome, or throws.
  function keep(outcome) {
    const id = outcome.delivery_id;
    if (seen.has(id)) {
      console.log(`again ${id}`);
      return "kept before";
    }
    try {
      const line = Buffer.from(JSON.stringify(outcome) + "\n");
      if (writeSync(file, line) < line.length) throw new Error("the disk is full");
      fsyncSync(file);
      size += line.length;
    } catch (err) {
      ftruncateSync(file, size);
      throw err;
    }
    seen.add(id);
    console.log(`kept ${id}`);
    if (--count === 0) enough();
    return "kept";
  }
  return { keep, close: () => closeSync(file) };
}
