import assert from "node:assert/strict";
import { test } from "node:test";

const { agentsCommand } = await import(`${process.env.PARENT}/agents-command.js`);
const { resumeCommand } = await import(`${process.env.PARENT}/resume-command.js`);
const { createVoice } = await import(`${process.env.PARENT}/voice.js`);

// A session whose user gives these answers to questions, in order, and whose companion answers by the name of a call.
function sessionOf(answers, choices = []) {
  const calls = [];
  const said = [];
  const asked = [];
  const next = (kind) => async (title, more) => {
    asked.push([kind, title, more]);
    return choices.shift();
  };
  return {
    ...{ calls, said, asked },
    ctx: { hasUI: true, mode: "rpc", ui: { confirm: next("confirm"), select: next("select") } },
    call: async (name, input) => {
      calls.push([name, input]);
      return answers[name] ?? { ok: true };
    },
    report: (text) => said.push(["report", text]),
    toast: (text, level = "info") => said.push([level, text]),
    fail: (answer) => said.push(["error", answer.error]),
  };
}

const ROW = { id: "a", level: 0, status: "waiting_user", window: 2, task: "do it" };
const FREE = { slot: "w-1", agentId: "z", reclaimable: true };
const BLOCKED = { slot: "w-2", reclaimable: false, blockers: ["process 7 lives."], waysOut: ["End it."] };

test("locks that nobody owns are released after a yes, those only, and what failed is told", async () => {
  const results = [{ slot: "w-1", ok: true }];
  const answers = { agents: { ok: true, agents: [], orphans: [FREE, BLOCKED] }, reclaim: { ok: true, results } };
  const session = sessionOf(answers, [true]);
  await agentsCommand(session);
  assert.deepEqual(session.calls.at(-1), ["reclaim", { slots: ["w-1"] }]);
  assert.match(session.asked[0][2], /w-1\nOnly the locks are removed; files and branches stay\./);
  const told = session.said.slice(1);
  assert.deepEqual(told[0], ["info", "1 of 1 released."]);
  assert.match(told[1][1], /^1 worktree lock cannot be released/);

  results[0] = { slot: "w-1", ok: false, error: "it is\nheld again" };
  const again = sessionOf(answers, [true]);
  await agentsCommand(again);
  assert.deepEqual(again.said[1], ["warning", "0 of 1 released.\nw-1: it is held again"]);
});

test("without a yes, and without a user to ask, nothing is released or cleared", async () => {
  const agents = [{ ...ROW, status: "failed" }];
  const answers = { agents: { ok: true, agents, orphans: [FREE], clearable: ["a"] } };
  const refusing = sessionOf(answers, [false, false]);
  await agentsCommand(refusing);
  assert.equal(refusing.asked.length, 2);
  const alone = sessionOf(answers);
  alone.ctx.hasUI = false;
  await agentsCommand(alone);
  assert.equal(alone.asked.length, 0);
  for (const { calls } of [refusing, alone]) assert.deepEqual(calls, [["agents", undefined]]);
});

test("a jump goes to the chosen agent, and one that fails says why", async () => {
  const row = "a  waiting_user  win:#2  do it";
  const answers = { agents: { ok: true, agents: [ROW] }, jump: { ok: true, id: "a", window: 2 } };
  const session = sessionOf(answers, [row, "Jump to its window"]);
  await agentsCommand(session);
  assert.deepEqual(session.calls.at(-1), ["jump", { id: "a" }]);
  assert.equal(session.said.length, 1);

  answers.jump = { ok: false, error: "The window of a is gone.", hint: "Look with agent-check." };
  const failing = sessionOf(answers, [row, "Jump to its window"]);
  await agentsCommand(failing);
  assert.deepEqual(failing.said.at(-1), ["error", "The window of a is gone.\nLook with agent-check."]);
});

test("a new title goes to the conversation as the companion understood it, and to none when nothing was typed", async () => {
  const sessions = [{ file: "/f", sessionId: "s", agentId: "a", title: "t", isNamed: false }];
  const answers = { resumable: { ok: true, sessions }, retitle: { ok: true, title: "new" } };
  const session = sessionOf(answers);
  session.ctx.mode = "tui";
  let selector;
  session.ctx.ui.custom = async (build) => void (selector = build({ requestRender() {} }, {}, {}, () => {}));
  await resumeCommand(session, "");
  const { renameSession } = selector.given.at(-1);
  globalThis.retitled = [];
  await renameSession("/f", "a · new");
  assert.deepEqual(session.calls.at(-1), ["retitle", { file: "/f", typed: "a · new" }]);
  answers.retitle = { ok: true, title: null };
  await renameSession("/f", "a · t");
  answers.retitle = { ok: false, error: "It is no conversation of a side agent." };
  await renameSession("/f", "x");
  assert.deepEqual(globalThis.retitled, [["/f", "new"]]);
  assert.deepEqual(session.said, [["error", "It is no conversation of a side agent."]]);
});

test("nothing that agents say brings terminal escapes into the conversation", () => {
  const sent = [];
  const theme = { fg: (_role, text) => text };
  const context = () => ({ hasUI: true, ui: { notify: (text) => sent.push(text), setStatus: () => {}, theme } });
  const voice = createVoice({ sendMessage: (message) => sent.push(message) }, context, { aborted: false });
  const evil = "\x1b[31mred\x1b]0;title\x07\x9b2J\x1bPdcs\x1b\\ end";
  voice.setIdle(true);
  voice.notice({ agentId: "a", toStatus: "failed", message: `side-agent a: failed ${evil}` });
  voice.rememberPrompt({ id: "a", prompt: evil });
  voice.toast(evil, "error");
  assert.equal(sent.length, 3);
  for (const each of sent) {
    const content = each.content ?? each;
    assert.ok(content.includes("red") && content.includes("end"), content);
    assert.doesNotMatch(content, /[\x00-\x08\x0b-\x1f\x7f-\x9f]/);
  }
});
