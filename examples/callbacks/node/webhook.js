// Is told outcomes by HTTP, signed after Standard Webhooks. It needs no package.
//
//   node webhook.js HOST:PORT FILE-WITH-SECRETS [how many, before it ends]

import { createHmac, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { open } from "./store.js";

const [address, file, count] = process.argv.slice(2);
const secrets = readFileSync(file, "utf8").match(/whsec_\S+/g);
const server = createServer(take);
const store = open(Number(count), () => server.close(() => store.close()));
const [, host, port] = address.match(/^(.*):(\d+)$/);
server.listen(Number(port), host, () => console.error(`listening on http://${address}/outcomes`));

async function take(req, res) {
  const answer = (status, text) => res.writeHead(status, { connection: "close" }).end(text);
  if (req.method !== "POST" || req.url !== "/outcomes") return answer(404);
  try {
    const parts = [];
    for await (const part of req) parts.push(part);
    const body = Buffer.concat(parts);
    if (!verified(req.headers, body)) return answer(401, "not signed by who may, or not now");
    answer(200, store.keep(JSON.parse(body))); // the receipt
  } catch (err) {
    answer(500, err.message); // it comes again
  }
}

// verified takes the body as it came: any other spelling has another signature.
function verified(headers, body) {
  const [id, time, given] = ["id", "timestamp", "signature"].map((h) => headers[`webhook-${h}`] ?? "");
  if (!(Math.abs(Date.now() / 1000 - Number(time || NaN)) <= 300)) return false; // an old one, sent again
  const signatures = given.split(" ").filter((s) => s.startsWith("v1,")).map((s) => Buffer.from(s.slice(3), "base64"));
  return secrets.some((secret) => {
    const key = Buffer.from(secret.slice("whsec_".length), "base64");
    const own = createHmac("sha256", key).update(`${id}.${time}.`).update(body).digest();
    return signatures.some((s) => s.length === own.length && timingSafeEqual(s, own));
  });
}
