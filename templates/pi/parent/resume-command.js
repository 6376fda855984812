// /agent-resume: a quit agent's conversation and branch, open again in a window.

import { tellStarted } from "./agent-command.js";
import { SessionManager, SessionSelectorComponent } from "./host.js";
import { oneLine, plain } from "./text.js";

export const DESCRIPTION = "Open a side agent again that was quit: its conversation and its branch.";
const NONE = "There is no conversation of a side agent to resume in this repository.";
const ROW_LIMIT = 110;

export async function resumeCommand(session, text) {
  const { ctx } = session;
  if (text.trim()) {
    session.toast("/agent-resume takes no arguments: choose from the list. Nothing was done.", "error");
    return;
  }
  const answer = await session.call("resumable");
  if (!answer.ok) {
    session.fail(answer);
    return;
  }
  const rows = answer.sessions ?? [];
  if (ctx.hasUI === false) {
    session.report(rows.length ? listing(rows) : NONE);
    return;
  }
  if (rows.length === 0) {
    session.toast(NONE);
    return;
  }
  const file = isTerminal(ctx) ? await fromSelector(session, rows) : await fromList(ctx, rows);
  if (file) await resume(session, file);
}

async function resume(session, file) {
  session.toast("Opening the conversation again …");
  const answer = await session.call("resume", { file });
  if (answer.ok) tellStarted(session, answer, null, { resumed: true });
  else session.fail(answer);
}

// Pi's own selector, the one of /resume: pages, search, sorting, renaming, deleting.
function fromSelector(session, rows) {
  const load = async () => {
    const answer = await session.call("resumable");
    return (answer.sessions ?? rows).map(asPiSession);
  };
  let first = rows.map(asPiSession);
  const current = async () => {
    const loaded = first ?? (await load());
    first = null;
    return loaded;
  };
  return session.ctx.ui.custom((tui, _theme, keybindings, done) => {
    const cancel = () => done(undefined);
    const options = {
      keybindings,
      showRenameHint: true,
      renameSession: (file, typed) => rename(session, file, typed),
    };
    return new SessionSelectorComponent(current, load, done, cancel, cancel, () => tui.requestRender(), options);
  });
}

// The typed line still holds the decorations of the row; the companion knows which.
async function rename(session, file, typed) {
  const answer = await session.call("retitle", { file, typed });
  if (!answer.ok) session.fail(answer);
  else if (answer.title) SessionManager.open(file).appendSessionInfo(answer.title);
}

async function fromList(ctx, rows) {
  const labels = new Map(rows.map((row, number) => [`${number + 1}. ${rowText(row)}`, row.file]));
  return labels.get(await ctx.ui.select("Resume a side agent", [...labels.keys()]));
}

function listing(rows) {
  const lines = rows.map((row, number) => `${number + 1}. ${age(row.modified)}  ${rowText(row)}`);
  return ["Conversations of side agents that can be resumed:", ...lines].join("\n");
}

// Id, branch note, then name or first message: rows are cut on the right.
export function rowText(row) {
  const text = row.text ?? [row.agentId, row.note, row.title].filter(Boolean).join(" · ");
  return oneLine(text, ROW_LIMIT);
}

export function asPiSession(row) {
  const text = rowText(row);
  const modified = timeOf(row.modified);
  return {
    path: row.file,
    id: row.sessionId ?? row.file,
    cwd: row.cwd ?? "",
    name: row.isNamed ? text : undefined,
    created: modified,
    modified,
    messageCount: Number.isInteger(row.messages) ? row.messages : 0,
    firstMessage: text,
    allMessagesText: plain(`${text} ${row.title ?? ""}`),
  };
}

// ISO text, or seconds since the epoch.
function timeOf(value) {
  const time = typeof value === "number" ? new Date(value * 1000) : new Date(value);
  return Number.isNaN(time.getTime()) ? new Date(0) : time;
}

function age(modified) {
  const minutes = Math.max(0, Math.round((Date.now() - timeOf(modified).getTime()) / 60_000));
  if (minutes < 60) return `${minutes}m`;
  return minutes < 48 * 60 ? `${Math.round(minutes / 60)}h` : `${Math.round(minutes / 1440)}d`;
}

function isTerminal(ctx) {
  return ctx.mode === undefined ? !process.argv.includes("rpc") : ctx.mode === "tui";
}
