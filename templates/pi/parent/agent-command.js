// /agent: hands a task to a new agent in the background.

import { USAGE, parseAgentArguments } from "./arguments.js";
import { prepareKickoff } from "./kickoff.js";
import { startedReport } from "./report.js";
import { oneLine } from "./text.js";

export const DESCRIPTION = `Hand a task to a side agent in its own worktree and window. ${USAGE}`;

export async function agentCommand(session, text) {
  const given = parseAgentArguments(text);
  if (given.error) {
    session.toast(given.error, "error");
    return;
  }
  session.toast(`Starting a side agent: ${oneLine(given.task, 100)}`);
  const { ctx } = session;
  const facts = await session.facts();
  // Where no agent can be started, no model is asked first; the call says why.
  const isHopeless = facts === null || facts.mayStart === false;
  const wantsSummary = facts?.config?.handoff === "summary";
  const [model, kickoff] = await Promise.all([
    chosenModel(session, given, facts),
    isHopeless ? { warnings: [] } : prepareKickoff(ctx, given.task, { wantsSummary, signal: session.ending }),
  ]);
  if (session.ending.aborted) return;
  const warnings = [...model.warnings, ...kickoff.warnings];
  const { task, withChanges = false } = given;
  const answer = await session.call("start", { task, withChanges, model: model.spec, ...kickoff, warnings });
  if (!answer.ok) {
    session.fail(answer);
    return;
  }
  tellStarted(session, answer, model.spec);
}

// What the user and the model are told of an agent that runs.
export function tellStarted(session, answer, model, { resumed = false } = {}) {
  // The report waits until Pi is idle.
  if (!session.isIdle) session.toast(startedReport(answer, { model, resumed }).split("\n")[0]);
  session.report(startedReport(answer, { model, resumed }), { agentId: answer.id, prompt: answer.prompt });
  if (answer.prompt) session.rememberPrompt(answer);
}

// -model wins over -mode, and a mode that cannot be used over nothing but the model of this session.
async function chosenModel(session, { model, mode }, facts) {
  if (model) return session.chooseModel(model, facts);
  const inherited = session.chooseModel(null, facts);
  if (!mode) return inherited;
  const answer = await session.call("mode", { name: mode });
  const warnings = answer.ok ? (answer.warnings ?? []) : [answer.error];
  for (const warning of warnings) session.toast(warning, "warning");
  return { spec: answer.spec ?? inherited.spec, warnings };
}
