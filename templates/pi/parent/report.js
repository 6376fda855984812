// Reports of /agent, /agents and /agent-resume: plain text for the session and the terminal.

import { clip, head, indent, oneLine, plain, plural } from "./text.js";

export const REPORT_TYPE = "side-agents-report";
const TASK_PREVIEW = 220;

// What was started. The prompt is shown but is no part of this text, which the model reads.
export function startedReport(answer, { model, resumed = false } = {}) {
  const rows = [
    ["window", windowName(answer)],
    ["branch", answer.branch],
    ["worktree", answer.worktreePath],
    ["model", model ?? answer.model],
    ["parent", answer.parentAgentId && `${answer.parentAgentId} (depth ${answer.depth})`],
  ];
  const lines = rows.filter(([, value]) => value).map(([name, value]) => `  ${name.padEnd(9)}${oneLine(value)}`);
  const warnings = (answer.warnings ?? []).map((warning) => `  warning  ${oneLine(warning, 400)}`);
  const verb = resumed ? "is open again" : "is running";
  return [`Side agent ${oneLine(answer.id)} ${verb}.`, ...lines, ...warnings].join("\n");
}

// The text of a failed call, with what to do next.
export function failureText(answer) {
  const error = plain(answer?.error ?? answer?.message) || "side-agents gave no answer.";
  const hint = plain(answer?.hint);
  return hint ? `${error}\n${hint}` : error;
}

// The tree of all agents with their details, then the leases that nobody owns.
export function agentsReport({ agents = [], orphans = [], unreadable = [] }) {
  const blocks = agents.map((row) => indent(agentBlock(row), "  ".repeat(row.level ?? 0)));
  if (unreadable.length) {
    const ids = oneLine(unreadable.join(", "), 400);
    blocks.push(`Records that cannot be read: ${ids}. side-agents doctor looks at them.`);
  }
  if (orphans.length) blocks.push(orphansBlock(orphans));
  return blocks.join("\n\n");
}

function rowMarks(row) {
  return [
    row.thisSession && "(this session)",
    row.parentAgentId && !row.orphan && `parent:${row.parentAgentId}`,
    row.orphan && "[orphan]",
  ].filter(Boolean);
}

export function windowNumber(row) {
  return Number.isInteger(row.window) ? `win:#${row.window}` : "-";
}

function agentBlock(row) {
  const worktree = row.worktreeName ? `worktree:${row.worktreeName}` : "-";
  const waiting = row.waitingFor ? `${row.status} (${row.waitingFor})` : row.status;
  const first = [row.id, waiting, windowNumber(row), worktree, ...rowMarks(row)].map((part) => oneLine(part));
  const lines = [first.join("  "), `  ${oneLine(row.task, TASK_PREVIEW) || "(no task)"}`];
  if (row.text) lines.push(`  said: ${oneLine(row.text, TASK_PREVIEW)}`);
  if (row.error) lines.push(`  error: ${oneLine(row.error, TASK_PREVIEW)}`);
  return lines.join("\n");
}

function orphansBlock(orphans) {
  const lines = orphans.map((orphan) => {
    const owner = orphan.agentId ? ` (held for ${oneLine(orphan.agentId)})` : "";
    const blockers = oneLine([...(orphan.blockers ?? []), ...(orphan.waysOut ?? [])].join(" "), 400);
    return `  ${oneLine(orphan.slot)}${owner}: ${orphan.reclaimable ? "can be freed" : `blocked: ${blockers}`}`;
  });
  return ["Worktrees that are locked for an agent that is not there:", ...lines].join("\n");
}

// Window id and index of a started agent.
function windowName(answer) {
  const index = Number.isInteger(answer.tmuxWindowIndex) ? `#${answer.tmuxWindowIndex}` : "";
  return [index, answer.tmuxWindowId && `(${answer.tmuxWindowId})`].filter(Boolean).join(" ");
}

// A report on the screen: first line bold, warnings and errors in their colours, the first prompt below.
export function drawReport(message, { expanded, color, bold }) {
  const [first = "", ...rest] = plain(message.content).split("\n");
  const lines = rest.map((line) => color(lineRole(line), line));
  return [bold(first), ...lines, ...promptLines(message.details?.prompt, expanded, color)].join("\n");
}

function lineRole(line) {
  if (/^\s*error: /.test(line)) return "error";
  return /^ {2}warning {2}/.test(line) ? "warning" : "muted";
}

function promptLines(prompt, expanded, color) {
  if (typeof prompt !== "string" || !prompt.trim()) return [];
  const { lines, more } = head(prompt, expanded ? 400 : 8, expanded ? 40_000 : 2_000);
  const note = more > 0 ? [color("dim", `    … ${plural(more, "more line")}`)] : [];
  const shown = lines.map((line) => color("dim", `    ${clip(line, 400)}`));
  return [color("muted", "  its first prompt:"), ...shown, ...note];
}
