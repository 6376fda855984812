// One Pi session as a parent of agents: its companion, its model, and what it tells.

import { Link } from "./link.js";
import { inheritedModel, resolveModel } from "./models.js";
import { plain } from "./text.js";
import { createVoice } from "./voice.js";

export function openSession(pi, firstContext, { environment, version, linked }) {
  const ending = new AbortController();
  let ctx = firstContext;
  let isIdle = false;
  const voice = createVoice(pi, () => ctx, ending.signal);
  const link = new Link(
    {
      environment,
      cwd: ctx.cwd,
      hello: { protocol: 1, host: "pi", hostVersion: version, linked, acknowledges: true },
      onEvent: (message) => ending.signal.aborted || hear(message, voice, link),
      onDown: (fatal, reason) => {
        voice.showStatus([]);
        if (fatal === null) voice.toast(downText(reason), "error");
      },
    },
    sessionFile(ctx),
  );
  const { setIdle, notice, ...telling } = voice;
  return {
    ...telling,
    // Aborted when the session ends.
    ending: ending.signal,
    get ctx() {
      return ctx;
    },
    get isIdle() {
      return isIdle;
    },
    get hasCompanion() {
      return link.running;
    },
    // Called with the context of each event: Pi's conversation may have another file by then.
    see(context) {
      ctx = context;
      link.update({ session: sessionFile(context) });
    },
    setIdle(value) {
      isIdle = value;
      link.update({ idle: value });
      voice.setIdle(value);
    },
    start: () => link.start(),
    facts: () => link.facts(),
    call: (name, input = {}, signal = ending.signal) => link.call(name, input, signal),
    callTool: (name, input, signal) =>
      name === "agent-start" ? startByTool(pi, ctx, link, input, signal) : link.call(name, input, signal),
    chooseModel: (request, facts) => chooseModel(pi, ctx, request, facts),
    close() {
      ending.abort();
      link.close();
    },
  };
}

function hear(message, voice, link) {
  if (message.event === "status") voice.showStatus(message.groups);
  else if (message.event === "toast") voice.toast(message.text, message.level);
  else if (message.event === "notice") voice.notice(message, () => link.told(message.seq));
}

// {spec, warnings} for the model of a new agent: as requested, as configured, else as this session's own.
function chooseModel(pi, ctx, request, facts) {
  const { model: current, modelRegistry } = ctx;
  if (request) return resolveModel(plain(request), { current, available: modelRegistry.getAvailable() });
  const isOurs = (facts?.client ?? "pi") === "pi" && !facts?.config?.model;
  return { spec: isOurs ? inheritedModel(current, pi.getThinkingLevel()) : null, warnings: [] };
}

// A Pi that a Pi starts works with the same model and thinks as hard, unless it is told otherwise (B21, B59).
async function startByTool(pi, ctx, link, input, signal) {
  const facts = await link.facts();
  if ((input.client ?? facts?.client ?? "pi") !== "pi") return link.call("agent-start", input, signal);
  const { spec, warnings } = chooseModel(pi, ctx, input.model, { ...facts, client: "pi" });
  const answer = await link.call("agent-start", spec ? { ...input, model: spec } : input, signal);
  return answer.ok && warnings.length ? { ...answer, warnings: [...(answer.warnings ?? []), ...warnings] } : answer;
}

function sessionFile(ctx) {
  return ctx.sessionManager.getSessionFile() ?? null;
}

function downText(reason) {
  return (
    `The companion process of side-agents ended twice (${plain(reason)}). The agents go on working, but this Pi no ` +
    "longer hears of them. The next /agents or tool call starts it again; side-agents doctor looks for the cause."
  );
}
