// What Pi keeps in its own folder: settings, the user's answers about trust, its version.

import { homedir } from "node:os";
import { dirname, join } from "node:path";

import { readJson, realPath } from "./files.js";

export function agentSettings() {
  return readJson(join(agentFolder(), "settings.json")) ?? {};
}

export function piVersion() {
  const start = realPath(process.argv[1] ?? ".");
  for (let place = dirname(start); place !== dirname(place); place = dirname(place)) {
    const about = readJson(join(place, "package.json"));
    if (about?.name?.endsWith("/pi-coding-agent")) return about.version;
  }
  return null;
}

// Newer Pi asks whether to trust a folder with project settings; a child must not stall there. The slot gets the
// answer that the user gave for it or for the main repository; without one its project files stay unloaded.
export function projectTrust(cwd, { folder, root }) {
  const owner = readJson(join(folder, "claim.json"));
  if (owner !== null && owner.pid !== process.pid) return { trusted: "undecided" };
  const answers = readJson(join(agentFolder(), "trust.json")) ?? {};
  const answer = nearestAnswer(answers, cwd) ?? (root ? nearestAnswer(answers, root) : null);
  const trusted = answer ?? agentSettings().defaultProjectTrust === "always";
  return { trusted: trusted ? "yes" : "no" };
}

function nearestAnswer(answers, folder) {
  for (let place = realPath(folder); ; place = dirname(place)) {
    if (typeof answers[place] === "boolean") return answers[place];
    if (place === dirname(place)) return null;
  }
}

function agentFolder() {
  const folder = process.env.PI_CODING_AGENT_DIR || join(homedir(), ".pi", "agent");
  return folder === "~" || folder.startsWith("~/") ? join(homedir(), folder.slice(1)) : folder;
}
