// The runtime folder of the agent: who it is, its journal, its first prompt.

import { createHash } from "node:crypto";
import { appendFileSync } from "node:fs";
import { join } from "node:path";

import { createOnce, readJson, readText } from "./files.js";

// One write of less than 4096 bytes reaches the file in one piece.
const LINE_LIMIT = 4095;
const TEXT_LIMIT = 500;
const LINK_ENTRY = "side-agent-link";

export function childFrom(environment) {
  const folder = environment.PI_SIDE_RUNTIME_DIR;
  const token = environment.SIDE_AGENTS_LAUNCH_TOKEN;
  const agentId = environment.PI_SIDE_AGENT_ID;
  if (!folder || !token || !agentId) return null;
  return {
    folder,
    token,
    agentId,
    parentSession: environment.PI_SIDE_PARENT_SESSION || null,
    parentAgentId: environment.PI_SIDE_PARENT_AGENT_ID || null,
    parentBranch: environment.PI_SIDE_PARENT_BRANCH || null,
    root: environment.PI_SIDE_AGENTS_ROOT || null,
    journal: openJournal(join(folder, "events.jsonl")),
  };
}

// The first process that presents the launch token is the agent; true when that is this one.
export function claim({ folder, token }) {
  const path = join(folder, "claim.json");
  const content = { pid: process.pid, token, claimedAt: new Date().toISOString() };
  if (createOnce(path, JSON.stringify(content))) return true;
  const owner = readJson(path);
  return owner?.pid === process.pid && owner?.token === token;
}

// The first prompt, "" when there is none or it was given before. The marker comes first: a prompt is rather missed,
// and said to be, than given twice.
export function kickoffText({ folder }) {
  const text = readText(join(folder, "kickoff.md"));
  if (!text) return "";
  return createOnce(join(folder, "kickoff.delivered"), `${new Date().toISOString()}\n`) ? text : "";
}

// The session names the agent that it belongs to, for whoever reads or resumes it later.
export function linkSession(pi, ctx, { agentId, parentSession }) {
  const links = ctx.sessionManager.getEntries().filter((entry) => entry.customType === LINK_ENTRY);
  if (links.at(-1)?.data?.agentId === agentId) return;
  pi.appendEntry(LINK_ENTRY, { agentId, parentSession, linkedAt: new Date().toISOString() });
}

export function inputEvent(text, state, source) {
  const sha256 = createHash("sha256").update(text, "utf8").digest("hex");
  return { type: "input", sha256, length: [...text].length, state, source };
}

function openJournal(path) {
  return (event) => {
    try {
      appendFileSync(path, journalLine(event), { mode: 0o600 });
    } catch {
      // A full disk or a folder that is gone must not stop the work.
    }
  };
}

function journalLine({ type, ...fields }) {
  const event = { type, at: new Date().toISOString(), ...fields };
  for (const key of ["text", "error", "sessionFile"]) {
    const line = `${JSON.stringify(event)}\n`;
    if (Buffer.byteLength(line) <= LINE_LIMIT) return line;
    delete event[key];
  }
  return `${JSON.stringify(event)}\n`;
}

export function clip(text) {
  return [...String(text ?? "").slice(0, 2 * TEXT_LIMIT)].slice(0, TEXT_LIMIT).join("");
}
