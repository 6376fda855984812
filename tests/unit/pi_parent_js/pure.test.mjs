import assert from "node:assert/strict";
import { test } from "node:test";

const load = (name) => import(`${process.env.PARENT}/${name}.js`);
const { plain, oneLine, clip, head } = await load("text");
const { parseAgentArguments } = await load("arguments");
const { resolveModel, inheritedModel, shortAnswerOptions } = await load("models");
const { statusLine } = await load("status-line");
const { drawNotice, noticeMessage } = await load("notices");
const report = await load("report");
const { drawCall, drawResult } = await load("render");
const { asPiSession, rowText } = await load("resume-command");
const { bounded } = await load("kickoff");

const tagged = (role, text) => `<${role}>${text}</${role}>`;
const paint = { color: (_role, text) => text, bold: (text) => text };

test("u9 text loses escapes, titles and controls, whatever their form, and keeps what can be read", () => {
  assert.equal(plain("\x1b[31mred\x1b[0m \x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x9b1mb"), "red alinkb");
  assert.equal(plain("\x1bPdcs\x1b\\x \x1b]never ended\nnext"), "x \nnext");
  assert.equal(plain("a\tb\r\nc\u202ed\0\x7f\x85"), "a\tb\ncd");
  for (const value of [undefined, null, {}, [], true]) assert.equal(plain(value), "");
  assert.equal(plain(7), "7");
});

test("u12 a long text is cut to its limit on one line, no character in half", () => {
  assert.equal(oneLine("a\n\n b\t c"), "a b c");
  assert.equal([...oneLine("x".repeat(400), 120)].length, 120);
  assert.equal(clip("🙂🙂🙂", 2), "🙂…");
  assert.equal(clip("🙂🙂", 2), "🙂🙂");
  assert.deepEqual(head("1\n2\n3\n4", 2), { lines: ["1", "2"], more: 2 });
});

test("/agent takes flags only at the beginning", () => {
  assert.deepEqual(parseAgentArguments("fix -model x now"), { task: "fix -model x now" });
  const both = parseAgentArguments(" -model a/b:high -mode quick  do\n it ");
  assert.deepEqual(both, { model: "a/b:high", mode: "quick", task: "do\n it" });
  assert.deepEqual(parseAgentArguments("--model=x do"), { model: "x", task: "do" });
  assert.deepEqual(parseAgentArguments("-with-changes -model x do"), { withChanges: true, model: "x", task: "do" });
  assert.deepEqual(parseAgentArguments("-model x -- -model y"), { model: "x", task: "-model y" });
  assert.deepEqual(parseAgentArguments("- a list\n- of things"), { task: "- a list\n- of things" });
  assert.deepEqual(parseAgentArguments("-modeling is hard"), { task: "-modeling is hard" });
  for (const text of ["", "  ", "-model", "-model x", "-mode", "--"]) {
    assert.match(parseAgentArguments(text).error, /Usage: \/agent/, text);
  }
});

test("b21 a bare model id gets its provider where that is clear", () => {
  const current = { provider: "p", id: "here" };
  const known = ["p/two", "q/two", "q/one", "r/far", "s/far"].map((name) => name.split("/"));
  const available = known.map(([provider, id]) => ({ provider, id }));
  const spec = (request) => resolveModel(request, { current, available }).spec;
  assert.equal(spec("any/thing:odd"), "any/thing:odd");
  assert.equal(spec("here:max"), "p/here:max");
  assert.equal(spec("one:low"), "q/one:low");
  assert.equal(spec("two"), "p/two");
  assert.equal(spec("none:at:all"), "none:at:all");
  const unclear = resolveModel("far:high", { current, available });
  assert.equal(unclear.spec, "far:high");
  assert.match(unclear.warnings[0], /r, s/);
});

test("b59 the session's model is passed on with how hard it thinks", () => {
  assert.equal(inheritedModel({ provider: "p", id: "a:b/c", reasoning: true }, "xhigh"), "p/a:b/c:xhigh");
  assert.equal(inheritedModel({ provider: "p", id: "plain" }, "off"), "p/plain");
  assert.equal(inheritedModel(undefined, "high"), null);
});

test("b46 a model is asked without thinking, and one that must think gets room for it", () => {
  assert.deepEqual(shortAnswerOptions({}), { maxTokens: 100 });
  assert.deepEqual(shortAnswerOptions({ reasoning: true }), { maxTokens: 100 });
  const forced = shortAnswerOptions({ reasoning: true, thinkingLevelMap: { off: null, minimal: null } });
  assert.deepEqual(forced, { maxTokens: 1600, reasoning: "low" });
});

test("the status line has groups, colours by status and a bar between groups", () => {
  const groups = [
    { kind: "parent", entries: [{ id: "up", short: "gone", gone: true }] },
    {
      kind: "children",
      entries: [
        { id: "a", short: "wait", status: "waiting_user", window: 3 },
        { id: "b", short: "fail", status: "failed", orphan: true },
      ],
    },
    { kind: "siblings", entries: [] },
    { kind: "others", entries: [{ id: "c", short: "run", status: "running", window: 0 }] },
  ];
  const line = statusLine(groups, tagged);
  const bar = "<dim>|</dim>";
  const children = "<accent>a:wait@3</accent> <error>b:fail[orphan]</error>";
  assert.equal(line, `<error>parent:up:gone</error> ${bar} ${children} ${bar} <dim>c:run@0</dim>`);
  for (const nothing of [[], undefined, "x", [{ kind: "children", entries: [] }]]) {
    assert.equal(statusLine(nothing, tagged), undefined);
  }
});

test("a notice has the details of 6.6 and no escapes, and is drawn in the colour of its status", () => {
  const told = { seq: 4, agentId: "a", fromStatus: "running", toStatus: "failed", path: ["failed"], coalescedCount: 1 };
  const text = "side-agent a: running -> failed \x1b[31mboom";
  const notice = { event: "notice", type: "notice", wake: false, message: text, ...told };
  const message = noticeMessage(notice);
  assert.equal(message.content, "side-agent a: running -> failed boom");
  assert.deepEqual([message.customType, message.display], ["side-agent-status", true]);
  assert.deepEqual(message.details, told);
  const drawn = "<error>✗</error> <dim>side-agent</dim> <error>a</error> <muted>running -> failed boom</muted>";
  assert.equal(drawNotice(message, tagged), drawn);
  for (const odd of [{}, { content: [] }, { content: "other", details: { agentId: 7 } }]) {
    assert.equal(typeof drawNotice(odd, tagged), "string");
  }
});

test("the report of a start names everything and leaves the prompt to the screen", () => {
  const place = { tmuxWindowId: "@3", tmuxWindowIndex: 3, branch: "side-agent/a", worktreePath: "/w" };
  const answer = { id: "a", ...place, depth: 2, parentAgentId: "p", warnings: ["one\ntwo"] };
  const text = report.startedReport(answer, { model: "p/m:high" });
  for (const part of ["a is running", "#3 (@3)", "side-agent/a", "/w", "p/m:high", "p (depth 2)", "warning  one two"]) {
    assert.ok(text.includes(part), part);
  }
  const message = { content: text, details: { prompt: Array.from({ length: 20 }, (_, n) => `line ${n}`).join("\n") } };
  const short = report.drawReport(message, { expanded: false, ...paint });
  assert.ok(short.includes("line 7") && !short.includes("line 8") && short.includes("12 more lines"));
  assert.ok(report.drawReport(message, { expanded: true, ...paint }).includes("line 19"));
});

test("the list of agents is a tree, with what blocks a lease and how to get on", () => {
  const agents = [
    {
      ...{ id: "a", level: 0, status: "waiting_user", waitingFor: "permission", window: 2, worktreeName: "w-1" },
      ...{ task: "do\na thing", text: "may I?", thisSession: true },
    },
    { id: "b", level: 1, parentAgentId: "a", status: "crashed", task: "", error: "gone\x1b[0m" },
    { id: "c", level: 0, parentAgentId: "x", orphan: true, status: "running" },
  ];
  const orphans = [
    { slot: "w-3", agentId: "z", reclaimable: false, blockers: ["process 7 lives."], waysOut: ["End it."] },
    { slot: "w-4", reclaimable: true },
  ];
  const lines = report.agentsReport({ agents, orphans, unreadable: ["q"] }).split("\n");
  const first = "a  waiting_user (permission)  win:#2  worktree:w-1  (this session)";
  assert.deepEqual(lines.slice(0, 3), [first, "  do a thing", "  said: may I?"]);
  assert.deepEqual(lines.slice(4, 7), ["  b  crashed  -  -  parent:a", "    (no task)", "    error: gone"]);
  assert.ok(lines.includes("c  running  -  -  [orphan]"));
  assert.ok(lines.includes("  w-3 (held for z): blocked: process 7 lives. End it."));
  assert.ok(lines.includes("  w-4: can be freed"));
  assert.ok(lines.some((line) => line.startsWith("Records that cannot be read: q")));
});

test("b61 calls are drawn from partial and wrongly typed arguments without escapes", () => {
  const names = ["agent-start", "agent-check", "agent-wait-any", "agent-send", "agent-of-tomorrow"];
  const whole = [undefined, null, "x", 7, [], {}];
  const fields = [{ ids: "a" }, { ids: [1, null, "b"] }, { id: {} }, { description: 5, branchHint: [] }, { prompt: null }];
  for (const name of names) {
    for (const args of [...whole, ...fields]) assert.equal(typeof drawCall(name, args, paint), "string");
  }
  const long = { branchHint: "fix\x1b[2J", model: "m", description: "l\n".repeat(30) + "\x1b]0;x\x07" };
  const text = drawCall("agent-start", long, paint);
  assert.ok(!text.includes("\x1b") && text.startsWith("agent-start fix [m]\n") && text.includes("24 more lines"));
  assert.equal(drawCall("agent-wait-any", { ids: ["a", "b"] }, paint), "agent-wait-any a b");
  const nine = { id: "a", prompt: "1\n2\n3\n4\n5\n6\n7\n8\n9" };
  assert.equal(drawCall("agent-send", nine, paint).split("\n").length, 10);
  assert.ok(drawCall("agent-send", { id: "a", prompt: "x".repeat(5000) }, paint).length < 2100);
});

test("results are drawn short, whole when expanded, and a failure with what to do", () => {
  const draw = (name, answer, options = {}) => drawResult(name, answer, { isPartial: false, ...options }, paint);
  assert.equal(draw("agent-wait-any", undefined, { isPartial: true }), "waiting…");
  const started = { ok: true, id: "a", branch: "side-agent/a", tmuxWindowIndex: 2, warnings: ["w"] };
  assert.equal(draw("agent-start", started), "✓ a in window #2 on side-agent/a\n! w");
  assert.equal(draw("agent-check", { ok: false, error: "no", hint: "look" }), "no\nlook");
  const agent = { id: "a", status: "waiting_user", waitingFor: "prompt" };
  const checked = draw("agent-check", { ok: true, agent, backlog: ["1", "2", "3", "4\x1b[0m"] });
  assert.equal(checked, "a waiting_user (prompt)\n  2\n  3\n  4");
  assert.match(draw("agent-check", { ok: true, agent: { id: "a" } }, { expanded: true }), /"id": "a"/);
  for (const odd of [undefined, null, 3, {}, { ok: true, warnings: null, backlog: 4, agent: null }]) {
    for (const name of ["agent-start", "agent-check", "agent-wait-any", "agent-send"]) {
      assert.equal(typeof draw(name, odd), "string");
    }
  }
});

test("a row to resume has id and note before the title, and becomes one of Pi's own", () => {
  const names = { file: "/f", sessionId: "s", agentId: "a", note: "branch gone", title: "t", isNamed: false };
  const row = { ...names, modified: "2026-01-02T03:04:05Z", messages: 3 };
  assert.equal(rowText(row), "a · branch gone · t");
  const session = asPiSession({ ...row, text: "a · note · x\x1b[0m" });
  assert.deepEqual([session.path, session.firstMessage], ["/f", "a · note · x"]);
  assert.deepEqual([session.name, session.messageCount], [undefined, 3]);
  assert.equal(session.modified.toISOString(), "2026-01-02T03:04:05.000Z");
  assert.equal(asPiSession({ ...row, isNamed: true, modified: "nonsense" }).modified.getTime(), 0);
});

test("of a long conversation its beginning and its end are kept", () => {
  assert.equal(bounded("short"), "short");
  const text = bounded("a".repeat(10) + "b".repeat(100) + "c".repeat(10), 10, 10);
  assert.ok(text.startsWith("aaaaaaaaaa\n") && text.endsWith("\ncccccccccc") && text.includes("100 characters left out"));
});
