// The line in Pi's footer: who of the agents around this session is in which state (reference/side-agents 6.7).

import { existsSync, readFileSync, watch } from "node:fs";
import { basename, dirname } from "node:path";

import { plain } from "./text.js";

export const STATUS_KEY = "side-agents";
export const STATUS_ROLES = {
  allocating_worktree: "warning",
  spawning_tmux: "warning",
  running: "muted",
  waiting_user: "accent",
  done: "muted",
  failed: "error",
  crashed: "error",
};
const SETTLE_MS = 50;

// `groups` as the companion tells them; `color` is (role, text) => text. undefined when there is nothing to show.
export function statusLine(groups, color) {
  const drawn = (Array.isArray(groups) ? groups : [])
    .map((group) => (group.entries ?? []).map((entry) => drawEntry(group.kind, entry, color)).join(" "))
    .filter(Boolean);
  return drawn.length ? drawn.join(` ${color("dim", "|")} `) : undefined;
}

function drawEntry(kind, entry, color) {
  const window = Number.isInteger(entry.window) && !entry.gone ? `@${entry.window}` : "";
  const name = kind === "parent" ? `parent:${entry.id}` : entry.id;
  const text = `${name}:${entry.gone ? "gone" : entry.short}${window}${entry.orphan ? "[orphan]" : ""}`;
  return color(roleOf(kind, entry), plain(text));
}

// Agents of other conversations in this repository are somebody else's business.
function roleOf(kind, entry) {
  if (entry.gone) return "error";
  return kind === "others" ? "dim" : (STATUS_ROLES[entry.status] ?? "muted");
}

// A child that has no companion of its own reads the line that the others publish. Returns a function that ends that.
export function watchPublished(file, agentId, show) {
  const folder = dirname(file);
  if (!existsSync(folder)) return () => {};
  let timer = null;
  const read = () => {
    timer = null;
    show(publishedGroups(file, agentId));
  };
  const soon = (_event, name) => {
    if ((name === null || name === basename(file)) && timer === null) timer = setTimeout(read, SETTLE_MS).unref();
  };
  const watcher = watch(folder, { persistent: false }, soon);
  watcher.on("error", () => watcher.close());
  read();
  return () => {
    clearTimeout(timer);
    watcher.close();
  };
}

function publishedGroups(file, agentId) {
  try {
    const { pid, lines } = JSON.parse(readFileSync(file, "utf8"));
    // Whoever wrote it keeps it true only while it lives.
    process.kill(pid, 0);
    return lines?.[agentId]?.groups ?? [];
  } catch {
    return [];
  }
}
