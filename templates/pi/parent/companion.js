// One run of `side-agents companion`: JSON lines in both directions, an answer for every call whatever happens.

import { spawn } from "node:child_process";

import { oneLine } from "./text.js";

// After a cancel the answer comes at once; a companion that is stuck must not hold up the user's Escape.
const CANCEL_MS = 2_000;
// What it wrote before it ended may arrive after the news of its end.
const DRAIN_MS = 500;
const LAST_WORDS = 2_000;

const CANCELLED = { ok: false, code: "cancelled", error: "The call was cancelled before anything was done." };

export class Companion {
  #child;
  #on;
  #pending = new Map();
  #lastId = 0;
  #fatal = null;
  #ended = false;
  #closing = false;
  #words = "";

  // `on` is called with {ready}, with {event, ...} and, once, with {ended, fatal, expected}.
  constructor({ program, environment, cwd, hello, on }) {
    this.#on = on;
    this.#child = spawn(program, ["companion"], { cwd, env: environment, stdio: ["pipe", "pipe", "pipe"] });
    const { stdin, stdout, stderr } = this.#child;
    this.#child.on("error", (error) => this.#end(`it could not be started (${error.code ?? error.message})`));
    this.#child.on("close", (code, signal) => this.#end(endOf(code, signal)));
    this.#child.on("exit", (code, signal) => setTimeout(() => this.#end(endOf(code, signal)), DRAIN_MS).unref());
    for (const stream of [stdin, stdout, stderr]) stream.on("error", () => {});
    stderr.setEncoding("utf8").on("data", (text) => (this.#words = (this.#words + text).slice(-LAST_WORDS)));
    eachMessage(stdout, (message) => this.#receive(message));
    this.write({ hello });
  }

  write(message) {
    if (!this.#ended && this.#child.stdin.writable) this.#child.stdin.write(`${JSON.stringify(message)}\n`);
  }

  // The answer, never an exception. An abort of `signal` becomes a cancel.
  call(name, input, signal) {
    if (signal?.aborted) return Promise.resolve(CANCELLED);
    const id = (this.#lastId += 1);
    return new Promise((resolve) => {
      const cancel = () => {
        this.write({ cancel: id });
        setTimeout(() => this.#settle(id, unknown("it did not answer the cancel")), CANCEL_MS).unref();
      };
      signal?.addEventListener("abort", cancel, { once: true });
      this.#pending.set(id, (answer) => {
        signal?.removeEventListener("abort", cancel);
        resolve(answer);
      });
      this.#holdPiOpen(true);
      this.write({ id, call: name, input });
      if (this.#ended) this.#settle(id, unknown("it had ended"));
    });
  }

  // Its standard input ends, and with it the companion.
  close() {
    this.#closing = true;
    this.#child.stdin.end();
    setTimeout(() => this.#ended || this.#child.kill("SIGKILL"), CANCEL_MS).unref();
  }

  #receive(message) {
    if ("answer" in message) this.#settle(message.id, message.answer);
    else if (message.fatal) this.#fatal = { ok: false, ...message.fatal };
    else if (message.ready || message.event) this.#on(message);
    if (message.ready && this.#pending.size === 0) this.#holdPiOpen(false);
  }

  #settle(id, answer) {
    const resolve = this.#pending.get(id);
    if (resolve === undefined) return;
    this.#pending.delete(id);
    if (this.#pending.size === 0) this.#holdPiOpen(false);
    resolve(answer);
  }

  #end(how) {
    if (this.#ended) return;
    this.#ended = true;
    const ended = [how, oneLine(this.#words, 300)].filter(Boolean).join(": ");
    for (const id of [...this.#pending.keys()]) this.#settle(id, this.#fatal ?? unknown(ended));
    this.#on({ ended, fatal: this.#fatal, expected: this.#closing });
  }

  // Only its beginning, and a call that waits for its answer, may keep a Pi that is done (print mode) from ending.
  #holdPiOpen(yes) {
    const { stdin, stdout, stderr } = this.#child;
    for (const handle of [this.#child, stdin, stdout, stderr]) handle[yes ? "ref" : "unref"]?.();
  }
}

function endOf(code, signal) {
  return signal ? `it was ended by ${signal}` : `it ended with status ${code}`;
}

function unknown(reason) {
  const what = `The companion process of side-agents did not answer: ${reason}.`;
  return {
    ok: false,
    code: "unknown-outcome",
    error: `${what} It is unknown whether this was carried out.`,
    hint: "Look with agent-check or /agents before you do it again.",
  };
}

// Lines end with "\n" alone: JSON may hold other line separators. What is no JSON object is passed over.
function eachMessage(stream, receive) {
  let rest = "";
  stream.setEncoding("utf8").on("data", (text) => {
    const lines = (rest + text).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const message = parsed(line);
      if (message !== null && typeof message === "object") receive(message);
    }
  });
}

function parsed(line) {
  try {
    return JSON.parse(line);
  } catch {
    return null;
  }
}
