// How calls of the tools and their results look in the transcript. Arguments arrive in pieces and may be of any type.

import { failureText } from "./report.js";
import { STATUS_ROLES } from "./status-line.js";
import { head, oneLine, plain, plural } from "./text.js";

const TASK_LINES = 6;
const PROMPT_LINES = 8;
const ALL_LINES = 400;
const BACKLOG_LINES = 3;

// `paint` has color(role, text) and bold(text). Returns the text of the call.
export function drawCall(name, given, paint, expanded = false) {
  const args = given !== null && typeof given === "object" ? given : {};
  const title = paint.color("toolTitle", paint.bold(name));
  const draw = CALLS[name] ?? (() => []);
  return [title, ...draw(args, paint, expanded)].join(" ").replace(" \n", "\n");
}

const CALLS = {
  "agent-start": (args, paint, expanded) => [
    paint.color("accent", oneLine(args.branchHint, 60) || "…"),
    ...(oneLine(args.model) ? [paint.color("muted", `[${oneLine(args.model, 80)}]`)] : []),
    ...textBlock(args.description, expanded ? ALL_LINES : TASK_LINES, paint),
  ],
  "agent-check": (args, paint) => [paint.color("accent", oneLine(args.id, 80) || "…")],
  "agent-wait-any": (args, paint) => [paint.color("accent", idList(args.ids) || "…")],
  "agent-send": (args, paint, expanded) => [
    paint.color("accent", oneLine(args.id, 80) || "…"),
    ...textBlock(args.prompt, expanded ? ALL_LINES : PROMPT_LINES, paint),
  ],
};

function idList(ids) {
  const list = Array.isArray(ids) ? ids : [ids];
  return oneLine(list.map(plain).filter(Boolean).join(" "), 400);
}

function textBlock(value, limit, paint) {
  const { lines, more } = head(value, limit);
  if (lines.join("") === "") return [];
  const rows = lines.map((line) => paint.color("toolOutput", `  ${line}`));
  if (more > 0) rows.push(paint.color("muted", `  … ${plural(more, "more line")}`));
  return [`\n${rows.join("\n")}`];
}

// The text of the result: what matters in a line or two, the whole answer when expanded.
export function drawResult(name, answer, { expanded, isPartial }, paint) {
  if (isPartial) return paint.color("muted", name === "agent-wait-any" ? "waiting…" : "…");
  if (answer === null || typeof answer !== "object") return paint.color("muted", oneLine(answer));
  if (expanded) return paint.color("toolOutput", plain(JSON.stringify(answer, null, 2)));
  if (answer.ok !== true) return paint.color("error", plain(failureText(answer)));
  return (RESULTS[name] ?? (() => paint.color("muted", "ok")))(answer, paint);
}

const RESULTS = {
  "agent-start": (answer, paint) => {
    const window = Number.isInteger(answer.tmuxWindowIndex) ? `in window #${answer.tmuxWindowIndex} ` : "";
    const where = paint.color("muted", `${window}on ${oneLine(answer.branch)}`);
    const line = `${paint.color("success", "✓")} ${paint.color("accent", oneLine(answer.id))} ${where}`;
    const warnings = (answer.warnings ?? []).map((text) => paint.color("warning", `! ${oneLine(text, 300)}`));
    return [line, ...warnings].join("\n");
  },
  "agent-check": (answer, paint) => checked(answer, paint),
  "agent-wait-any": (answer, paint) => checked(answer, paint),
  "agent-send": (answer, paint) =>
    `${paint.color("success", "✓")} ${paint.color("muted", oneLine(answer.message, 300))}`,
};

function checked(answer, paint) {
  const agent = answer.agent ?? {};
  const waiting = agent.waitingFor ? ` (${oneLine(agent.waitingFor)})` : "";
  const first = [
    paint.color("accent", oneLine(agent.id)),
    paint.color(STATUS_ROLES[agent.status] ?? "muted", `${oneLine(agent.status) || "no answer"}${waiting}`),
    ...(agent.error ? [paint.color("error", oneLine(agent.error, 300))] : []),
  ];
  const lines = Array.isArray(answer.backlog) ? answer.backlog.slice(-BACKLOG_LINES) : [];
  return [first.join(" "), ...lines.map((line) => paint.color("toolOutput", `  ${oneLine(line, 160)}`))].join("\n");
}
