// What a resumed agent has to know: resume-notice.json in its runtime folder, written when directory, tree or parent are
// others than in its conversation. Told once for each noticeId, only there and only in the conversation it is about.

import { join } from "node:path";

import { plain } from "../parent/text.js";
import { readIfThere, realPath } from "./files.js";

const ENTRY = "side-agent-resume-notice";

// Put the notice into the conversation without waking the model. Only for the start of a process.
export function tellResumeNotice(pi, ctx, { folder }) {
  const path = join(folder, "resume-notice.json");
  const notice = read(path);
  if (notice === null) return;
  if (notice === undefined) {
    ctx.ui.notify(`The resume notice ${path} cannot be read; check where this agent works before it goes on.`, "warning");
    return;
  }
  const session = ctx.sessionManager;
  const isHere = realPath(notice.targetCwd) === realPath(ctx.cwd);
  if (!isHere || !isAbout(session, notice.sourceSessionPath) || wasTold(session, notice.noticeId)) return;
  const { noticeId, targetCwd, sourceSessionPath } = notice;
  const details = { noticeId, targetCwd, sourceSessionPath };
  pi.sendMessage({ customType: ENTRY, content: plain(notice.content), display: true, details }, { triggerTurn: false });
}

// null when there is none, undefined when it cannot be understood.
function read(path) {
  try {
    const text = readIfThere(path);
    if (text === null) return null;
    const notice = JSON.parse(text);
    const fields = [notice.noticeId, notice.targetCwd, notice.sourceSessionPath, notice.content];
    return fields.every((field) => typeof field === "string" && field !== "") ? notice : undefined;
  } catch {
    return undefined;
  }
}

// The conversation itself, or a direct copy of it.
function isAbout(session, source) {
  const names = [session.getSessionFile(), session.getHeader()?.parentSession];
  return names.some((name) => typeof name === "string" && realPath(name) === realPath(source));
}

function wasTold(session, noticeId) {
  return session.getEntries().some((entry) => entry.customType === ENTRY && entry.details?.noticeId === noticeId);
}
