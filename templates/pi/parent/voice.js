// What a session tells its user and its model.

import { writeSync } from "node:fs";

import { noticeMessage } from "./notices.js";
import { createOutbox } from "./outbox.js";
import { REPORT_TYPE, drawReport, failureText } from "./report.js";
import { STATUS_KEY, statusLine } from "./status-line.js";
import { plain } from "./text.js";

export const PROMPT_TYPE = "side-agent-prompt";
const LEVELS = new Set(["info", "warning", "error"]);
// That an agent works on is no reason to begin a turn, wherever a user lets notices do that.
const NEEDS_SOMEBODY = new Set(["waiting_user", "failed", "crashed", "done"]);
const PLAINLY = { expanded: true, color: (_role, text) => text, bold: (text) => text };
const PROMPT_LIMIT = 20_000;

// `context()` is the newest context that Pi gave; after `ending` has been aborted nothing is said any more.
export function createVoice(pi, context, ending) {
  const outbox = createOutbox(pi);
  const voice = {
    setIdle: outbox.setIdle,
    // A line that passes; without a user interface on standard error.
    toast(text, level = "info") {
      if (ending.aborted) return;
      if (context().hasUI === false) console.error(plain(text));
      else context().ui.notify(plain(text), LEVELS.has(level) ? level : "info");
    },
    fail(answer) {
      voice.toast(failureText(answer), "error");
    },
    // A report in the conversation; without a user interface on standard output.
    report(text, details = {}) {
      if (ending.aborted) return;
      const message = { customType: REPORT_TYPE, content: text, display: true, details };
      // Pi sends what extensions print to standard error; a report is what was asked for.
      const isPrinted = context().hasUI === false && !process.argv.includes("json");
      if (isPrinted) writeSync(process.stdout.fd, `${drawReport(message, PLAINLY)}\n`);
      else outbox.put(message);
    },
    // What a child was told, for the model: not shown.
    rememberPrompt(answer) {
      outbox.put(promptMessage(answer));
    },
    notice(notice, sent) {
      const wakes = notice.wake === true && NEEDS_SOMEBODY.has(notice.toStatus);
      outbox.put(noticeMessage(notice), { wakes, sent });
    },
    showStatus(groups) {
      if (ending.aborted) return;
      const { ui } = context();
      ui.setStatus(STATUS_KEY, statusLine(groups, (role, text) => ui.theme.fg(role, text)));
    },
  };
  return voice;
}

function promptMessage({ prompt, id, tmuxWindowId, tmuxWindowIndex, worktreePath, branch }) {
  const text = plain(prompt);
  const rest = text.length - PROMPT_LIMIT;
  const cut = rest > 0 ? `${text.slice(0, PROMPT_LIMIT)}\n[… ${rest} more characters]` : text;
  const content = `## First prompt of side agent ${id}\n\n${cut}`;
  const startedAt = new Date().toISOString();
  const details = { agentId: id, tmuxWindowId, tmuxWindowIndex, worktreePath, branch, prompt: text, startedAt };
  return { customType: PROMPT_TYPE, content, display: false, details };
}
