import assert from "node:assert/strict";
import { test } from "node:test";

const { prepareKickoff } = await import(`${process.env.PARENT}/kickoff.js`);

const answer = (text, more = {}) => ({ stopReason: "stop", content: [{ type: "text", text }], ...more });
const isName = (context) => context.systemPrompt.startsWith("You name tasks");

// A session whose model answers with what `reply` gives for a request.
function contextOf(reply, messages = [{ role: "user", content: "we use tabs" }], registry = {}) {
  const asked = [];
  const entries = messages.map((message) => ({ type: "message", message }));
  const streamSimple = (_model, context, options) => {
    asked.push({ ...context, options });
    return { result: async () => reply(context) };
  };
  return {
    asked,
    model: { id: "m", provider: "p" },
    modelRegistry: { streamSimple, ...registry },
    sessionManager: { getBranch: () => [{ type: "custom_message", content: "not a message" }, ...entries] },
  };
}

test("name and summary are asked for together, with the conversation as data", async () => {
  const ctx = contextOf((context) => answer(isName(context) ? "thinking…\nfix-login-page" : "- use tabs"));
  const found = await prepareKickoff(ctx, "fix it", { wantsSummary: true });
  assert.deepEqual(found, { slug: "fix-login-page", summary: "- use tabs", hasMessages: true, warnings: [] });
  const text = ctx.asked.find((each) => !isName(each)).messages[0].content[0].text;
  assert.equal(text, "<conversation>\nuser: we use tabs\n</conversation>\n\n<task>\nfix it\n</task>");
  assert.ok(ctx.asked.every((each) => each.options.maxTokens <= 500 && each.options.signal));
});

test("without messages, or where it is not wanted, no summary is asked for", async () => {
  for (const [messages, wantsSummary] of [[[], true], [undefined, false]]) {
    const ctx = contextOf(() => answer("a-name"), messages);
    const found = await prepareKickoff(ctx, "task", { wantsSummary });
    assert.deepEqual([found.summary, found.summaryFailed, ctx.asked.length], [undefined, undefined, 1]);
    assert.equal(found.hasMessages, messages === undefined);
  }
});

test("whatever goes wrong with the model, the task goes on and the reason is said", async () => {
  const broken = {
    "an exception": () => { throw new Error("boom\nbang."); },
    "an error": () => answer("", { stopReason: "error", errorMessage: "boom\nbang." }),
  };
  for (const [name, reply] of Object.entries(broken)) {
    const found = await prepareKickoff(contextOf(reply), "task", { wantsSummary: true });
    const warnings = ["The name was made from the words of the task: boom bang."];
    assert.deepEqual(found, { summaryFailed: true, hasMessages: true, warnings }, name);
  }
  const empty = await prepareKickoff(contextOf(() => answer("…")), "task", { wantsSummary: false });
  assert.match(empty.warnings[0], /gave no usable one/);
  const without = { ...contextOf(() => answer("x")), model: undefined };
  assert.match((await prepareKickoff(without, "task", { wantsSummary: false })).warnings[0], /no model is selected/);
});

test("older Pi is asked through its own library, with the key that it keeps", async () => {
  const seen = [];
  globalThis.completeSimple = async (...args) => (seen.push(args), answer("old-name"));
  const key = { ok: true, apiKey: "k", headers: { h: "1" } };
  const registry = { streamSimple: undefined, getApiKeyAndHeaders: async () => key };
  assert.equal((await prepareKickoff(contextOf(null, [], registry), "task", {})).slug, "old-name");
  assert.deepEqual([seen[0][2].apiKey, seen[0][2].headers], ["k", { h: "1" }]);
  registry.getApiKeyAndHeaders = async () => ({ ok: false, error: "no key" });
  assert.match((await prepareKickoff(contextOf(null, [], registry), "task", {})).warnings[0], /no key/);
});

test("a session that ends while it is asked ends the question", async () => {
  const ending = new AbortController();
  const never = (_model, _context, { signal }) => ({
    result: () => new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
  });
  const asking = prepareKickoff(contextOf(null, [], { streamSimple: never }), "task", { signal: ending.signal });
  ending.abort();
  assert.equal((await asking).slug, undefined);
});

test("an immense conversation is bounded before it is sent", async () => {
  const messages = Array.from({ length: 5000 }, (_, n) => ({ role: "user", content: `${n} ${"x".repeat(2000)}` }));
  const ctx = contextOf(() => answer("a"), messages);
  await prepareKickoff(ctx, "t".repeat(1e6), { wantsSummary: true });
  assert.ok(ctx.asked.every((each) => each.messages[0].content[0].text.length < 40_000));
});
