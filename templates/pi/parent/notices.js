// What happened to agents, as a visible message of the session (reference/side-agents 6.6). It does not wake the model.

import { textComponent } from "./host.js";
import { STATUS_ROLES } from "./status-line.js";
import { oneLine, plain } from "./text.js";

export const NOTICE_TYPE = "side-agent-status";
const DETAILS = [
  "agentId",
  "parentAgentId",
  "orphaned",
  "adopted",
  "fromStatus",
  "toStatus",
  "path",
  "tmuxWindowIndex",
  "coalescedCount",
  "firstObservedAt",
  "observedAt",
  "emittedAt",
  "waitingFor",
  "text",
  "error",
  "endedBy",
  "seq",
];
const SIGNS = { waiting_user: "●", running: "●", done: "✓", failed: "✗", crashed: "✗" };
const ROLES = { ...STATUS_ROLES, done: "success" };
const SHOWN_TEXT = 500;

export function noticeMessage(notice) {
  const known = DETAILS.filter((key) => notice[key] !== undefined);
  const details = Object.fromEntries(known.map((key) => [key, notice[key]]));
  return { customType: NOTICE_TYPE, content: plain(notice.message), display: true, details };
}

// The notice in colours; the content that the model reads has none.
export function drawNotice(message, color) {
  const details = message.details ?? {};
  const content = oneLine(typeof message.content === "string" ? message.content : "", SHOWN_TEXT);
  const role = ROLES[details.toStatus] ?? "muted";
  const id = plain(details.agentId);
  const head = `side-agent ${id}: `;
  if (!id || !content.startsWith(head)) return color("muted", content);
  const sign = color(role, SIGNS[details.toStatus] ?? "●");
  return `${sign} ${color("dim", "side-agent")} ${color(role, id)} ${color("muted", content.slice(head.length))}`;
}

export function registerNotices(pi) {
  pi.registerMessageRenderer(NOTICE_TYPE, (message, _options, theme) =>
    textComponent(drawNotice(message, (role, text) => theme.fg(role, text)), 1),
  );
}
