// /agents: who is there, in a tree; then, where there is a user to ask, clearing up and a choice of what to do.

import { agentsReport, failureText, windowNumber } from "./report.js";
import { clip, oneLine, plain, plural } from "./text.js";

export const DESCRIPTION = "List the side agents; clear failed ones, look at one, jump to it, stop it.";
const NONE = "There are no side agents now. /agent TASK starts one, /agent-resume opens one again that has ended.";
const NAMED = 6;
const LOG_LINES = 40;
const ROW_LIMIT = 110;

const JUMP = "Jump to its window";
const LOG = "Show what it printed last";
const STOP = "Stop it (its work is kept)";

export async function agentsCommand(session) {
  const answer = await session.call("agents");
  if (!answer.ok) {
    session.fail(answer);
    return;
  }
  const { agents = [], orphans = [], clearable = [] } = answer;
  if (agents.length + orphans.length === 0) {
    session.toast(NONE);
    return;
  }
  session.report(agentsReport(answer));
  if (session.ctx.hasUI === false) return;
  await clearFailed(session, clearable);
  await reclaimOrphans(session, orphans);
  const cleared = new Set(clearable);
  await choose(session, agents.filter((row) => !cleared.has(row.id)));
}

async function clearFailed(session, ids) {
  if (ids.length === 0) return;
  const question = `Remove ${plural(ids.length, "failed or crashed agent")} from the list?`;
  const what = `${list(ids)}\nTheir branches and worktrees stay; only the locks on the worktrees are released.`;
  if (!(await session.ctx.ui.confirm(question, what))) return;
  await tellResults(session, await session.call("clear", { ids }), ids.length, "removed");
}

async function reclaimOrphans(session, orphans) {
  const free = orphans.filter((orphan) => orphan.reclaimable).map((orphan) => orphan.slot);
  const blocked = orphans.length - free.length;
  if (free.length) {
    const question = `Release ${plural(free.length, "worktree lock")} that nobody owns?`;
    const what = `${list(free)}\nOnly the locks are removed; files and branches stay.`;
    if (await session.ctx.ui.confirm(question, what)) {
      await tellResults(session, await session.call("reclaim", { slots: free }), free.length, "released");
    }
  }
  if (blocked) {
    session.toast(`${plural(blocked, "worktree lock")} cannot be released; the list above says why.`, "warning");
  }
}

async function tellResults(session, answer, count, verb) {
  if (!answer.ok && !answer.results) {
    session.fail(answer);
    return;
  }
  const failed = (answer.results ?? []).filter((result) => result.ok === false);
  const done = `${count - failed.length} of ${count} ${verb}.`;
  const why = failed.map((result) => `${result.id ?? result.slot}: ${oneLine(result.error, 200)}`);
  session.toast([done, ...why].join("\n"), failed.length ? "warning" : "info");
}

// Escape leaves the list.
async function choose(session, agents) {
  if (agents.length === 0) return;
  const rows = new Map(agents.map((row) => [choice(row), row]));
  const picked = await session.ctx.ui.select("Side agents: choose one, escape closes", [...rows.keys()]);
  const row = rows.get(picked);
  if (row === undefined) return;
  const action = await session.ctx.ui.select(oneLine(`${row.id}: ${row.status}`), [JUMP, LOG, STOP]);
  if (action === JUMP) await tell(session, session.call("jump", { id: row.id }));
  if (action === LOG) await showLog(session, row);
  if (action === STOP) await stop(session, row, agents);
}

function choice(row) {
  const id = `${"  ".repeat(row.level ?? 0)}${oneLine(row.id)}${row.orphan ? " [orphan]" : ""}`;
  return clip([id, oneLine(row.status), windowNumber(row), oneLine(row.task)].join("  "), ROW_LIMIT);
}

async function showLog(session, row) {
  const answer = await session.call("log", { id: row.id, lines: LOG_LINES });
  if (!answer.ok) {
    session.fail(answer);
    return;
  }
  const lines = answer.lines ?? answer.backlog ?? [];
  const text = lines.map(plain).join("\n");
  session.toast(text ? `${row.id} printed last:\n${text}` : `${row.id} has printed nothing yet.`);
}

async function stop(session, row, agents) {
  const below = agents.filter((other) => other.parentAgentId === row.id).map((other) => other.id);
  const also = below.length ? `\nThe agents that it started are stopped, too: ${list(below)}.` : "";
  const what = `Its process ends and its window closes. Branch, worktree and conversation stay.${also}`;
  if (!(await session.ctx.ui.confirm(`Stop ${row.id}?`, what))) return;
  await tell(session, session.call("stop", { id: row.id, tree: below.length > 0 }), `${row.id} is stopped.`);
}

async function tell(session, call, done) {
  const answer = await call;
  const text = answer.ok ? (answer.message ?? done) : failureText(answer);
  if (text) session.toast(text, answer.ok ? "info" : "error");
}

function list(names) {
  const shown = names.slice(0, NAMED).map((name) => oneLine(name, 80)).join(", ");
  return names.length > NAMED ? `${shown} and ${names.length - NAMED} more` : shown;
}
