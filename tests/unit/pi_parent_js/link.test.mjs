import assert from "node:assert/strict";
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

const { Link } = await import(`${process.env.PARENT}/link.js`);
const { findProgram, stateFolder } = await import(`${process.env.PARENT}/program.js`);
const { createOutbox } = await import(`${process.env.PARENT}/outbox.js`);

const scratch = process.env.SCRATCH;
let count = 0;

// A companion that does what `body` says with each message; it writes all that it hears to its log.
function standIn(body) {
  const program = join(scratch, `companion-${(count += 1)}`);
  const log = `${program}.log`;
  const source = `#!${process.execPath}
const { appendFileSync, existsSync } = require("node:fs");
const say = (message) => process.stdout.write(JSON.stringify(message) + "\\n");
const firstRun = !existsSync(${JSON.stringify(log)});
require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  appendFileSync(${JSON.stringify(log)}, line + "\\n");
  const message = JSON.parse(line);
  ${body}
}).on("close", () => process.exit(0));
`;
  writeFileSync(program, source);
  chmodSync(program, 0o755);
  return { program, heard: () => readFileSync(log, "utf8").trim().split("\n").map((line) => JSON.parse(line)) };
}

function linkTo(program, told = []) {
  const setting = {
    environment: { SIDE_AGENTS_PROGRAM: program, PATH: process.env.PATH },
    cwd: scratch,
    hello: { protocol: 1, host: "pi" },
    onEvent: (message) => told.push(message),
    onDown: (fatal, down) => told.push({ down, fatal }),
  };
  return new Link(setting, "/s");
}

const HELLO = 'if (message.hello) say({ ready: { protocol: 1, agent: null } });';

test("nothing is started before the first call, which says hello; answers come in any order", async () => {
  const { program, heard } = standIn(`${HELLO}
    if (message.call === "slow") setTimeout(() => say({ id: message.id, answer: { ok: true, n: message.id } }), 100);
    if (message.call === "quick") say({ id: message.id, answer: { ok: true, n: message.id } });
    if (message.idle) process.stdout.write("not json\\n[1]\\n\\n");`);
  const link = linkTo(program);
  assert.equal(link.running, false);
  link.update({ idle: true });
  const [slow, quick] = await Promise.all([link.call("slow", { a: 1 }), link.call("quick", {})]);
  assert.deepEqual([slow.n, quick.n], [1, 2]);
  assert.deepEqual(await link.facts(), { protocol: 1, agent: null });
  link.update({ session: "/t", idle: true });
  link.told(9);
  await link.call("quick", {});
  assert.deepEqual(heard().slice(0, 3), [
    { hello: { protocol: 1, host: "pi", session: "/s" } },
    { idle: true },
    { id: 1, call: "slow", input: { a: 1 } },
  ]);
  assert.deepEqual(heard().slice(4), [{ session: "/t" }, { told: 9 }, { id: 3, call: "quick", input: {} }]);
  link.close();
  assert.equal((await link.call("quick", {})).code, "cancelled");
});

test("a crash leaves the outcome open, starts it once more, and is told when that does not help", async () => {
  const { program } = standIn(`${HELLO} if (message.call) { process.stderr.write("out of luck"); process.exit(3); }`);
  const told = [];
  const link = linkTo(program, told);
  const first = await link.call("agent-start", {});
  assert.equal(first.code, "unknown-outcome");
  assert.match(first.error, /ended with status 3: out of luck.*unknown whether/);
  assert.equal(link.running, true);
  assert.deepEqual(told, []);
  await link.call("agent-start", {});
  assert.equal(link.running, false);
  assert.match(told[0].down, /status 3/);
  assert.equal((await link.call("agent-start", {})).code, "unknown-outcome");
  link.close();
});

test("a fatal beginning answers every call with its reason", async () => {
  const { program } = standIn(`
    say({ fatal: { error: "no repository", code: "not-a-repository" } });
    process.exitCode = 4;
    process.stdin.destroy();`);
  const told = [];
  const link = linkTo(program, told);
  const facts = link.facts();
  assert.deepEqual(await link.call("agents", {}), { ok: false, error: "no repository", code: "not-a-repository" });
  assert.equal(await facts, null);
  assert.equal(told[0].fatal.code, "not-a-repository");
  link.close();
});

test("an abort becomes a cancel; a companion that ignores it does not hold the user up", async () => {
  const { program, heard } = standIn(`${HELLO}
    if (message.cancel === 1) say({ id: 1, answer: { ok: false, code: "cancelled" } });`);
  const link = linkTo(program);
  for (const [number, code] of [[1, "cancelled"], [2, "unknown-outcome"]]) {
    const abort = new AbortController();
    const call = link.call("agent-wait-any", {}, abort.signal);
    await link.facts();
    abort.abort();
    assert.equal((await call).code, code);
    assert.deepEqual(heard().at(-1), { cancel: number });
  }
  assert.equal((await link.call("agents", {}, AbortSignal.abort())).code, "cancelled");
  link.close();
});

test("a missing program is an answer with the way out", async () => {
  const link = linkTo(join(scratch, "nowhere"));
  const answer = await link.call("agents", {});
  assert.equal(answer.code, "tool-missing");
  assert.match(answer.hint, /pipx install side-agents/);
  assert.equal(await link.facts(), null);
  assert.equal(findProgram({ PATH: scratch }), null);
});

test("the state folder is that of the main repository, and none where agents were never used", () => {
  const main = join(scratch, "main repo");
  const linked = join(scratch, "linked");
  mkdirSync(join(main, ".git", "worktrees", "linked"), { recursive: true });
  mkdirSync(join(main, "src", "deep"), { recursive: true });
  mkdirSync(linked);
  writeFileSync(join(linked, ".git"), `gitdir: ${main}/.git/worktrees/linked\n`);
  for (const place of [main, linked, join(main, "src", "deep")]) assert.equal(stateFolder(place, {}), null);
  mkdirSync(join(main, ".pi", "side-agents"), { recursive: true });
  writeFileSync(join(main, ".pi", "side-agents", "registry.json"), "{}");
  const state = join(main, ".pi", "side-agents");
  for (const place of [main, linked, join(main, "src", "deep")]) assert.equal(stateFolder(place, {}), state);
  assert.equal(stateFolder("/", { PI_SIDE_AGENTS_ROOT: main }), state);
  assert.equal(stateFolder("/", {}), null);
});

test("messages wait until the session is idle and wake it only where one of them shall", () => {
  const sent = [];
  const arrived = [];
  const outbox = createOutbox({ sendMessage: (message, options) => sent.push([message, options.triggerTurn]) });
  outbox.put("a", { sent: () => arrived.push("a") });
  outbox.put("b", { wakes: true });
  outbox.put("c");
  assert.deepEqual([sent, arrived], [[], []]);
  outbox.setIdle(true);
  assert.deepEqual(sent, [["a", false], ["b", false], ["c", true]]);
  assert.deepEqual(arrived, ["a"]);
  outbox.put("d");
  outbox.setIdle(false);
  outbox.put("e");
  assert.deepEqual(sent.slice(3), [["d", false]]);
});
