// The companion of one session: started by first use, started once more after a crash, ended with the session.

import { Companion } from "./companion.js";
import { MISSING, findProgram } from "./program.js";

const CLOSED = { ok: false, code: "cancelled", error: "This session has ended. Nothing was done." };
// A companion that lived this long has recovered from whatever ended an earlier one.
const STEADY_MS = 60_000;

export class Link {
  #setting;
  #state;
  #companion = null;
  #facts = null;
  #waiting = [];
  #crashes = 0;
  #startedAt = 0;
  #closed = false;

  // `setting` has: environment, cwd, hello (but for the session), onEvent(message), onDown(fatal, reason).
  constructor(setting, session) {
    this.#setting = setting;
    this.#state = { session, idle: false };
  }

  get running() {
    return this.#companion !== null;
  }

  // Without a companion it is started; null when the program is missing or the session has ended.
  start() {
    if (this.#closed) return null;
    return (this.#companion ??= this.#begin());
  }

  async call(name, input, signal) {
    const companion = this.start();
    if (companion === null) return this.#closed ? CLOSED : MISSING;
    return companion.call(name, input, signal);
  }

  // What the companion says of itself, null when it cannot work here.
  async facts() {
    if (this.start() === null) return null;
    return this.#facts ?? new Promise((resolve) => this.#waiting.push(resolve));
  }

  // What the companion is to know: {session?, idle?}.
  update(change) {
    for (const [key, value] of Object.entries(change)) {
      if (this.#state[key] === value) continue;
      this.#state[key] = value;
      this.#companion?.write({ [key]: value });
    }
  }

  told(seq) {
    this.#companion?.write({ told: seq });
  }

  close() {
    this.#closed = true;
    this.#companion?.close();
    this.#companion = null;
    this.#announce(null);
  }

  #begin() {
    const { environment, cwd, hello } = this.#setting;
    const program = findProgram(environment);
    if (program === null) return null;
    this.#startedAt = Date.now();
    const companion = new Companion({
      program,
      environment,
      cwd,
      hello: { ...hello, session: this.#state.session },
      on: (message) => companion === this.#companion && this.#heard(message),
    });
    if (this.#state.idle) companion.write({ idle: true });
    return companion;
  }

  #heard(message) {
    if (message.ready) this.#announce(message.ready);
    else if (message.event) this.#setting.onEvent(message);
    else this.#lost(message);
  }

  #lost({ ended, fatal, expected }) {
    this.#companion = null;
    this.#announce(null);
    if (this.#closed || expected) return;
    if (Date.now() - this.#startedAt > STEADY_MS) this.#crashes = 0;
    this.#crashes += 1;
    if (fatal === null && this.#crashes === 1 && this.start() !== null) return;
    this.#setting.onDown(fatal, ended);
  }

  #announce(facts) {
    this.#facts = facts;
    for (const resolve of this.#waiting.splice(0)) resolve(facts);
  }
}
