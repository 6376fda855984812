// The parent side: in every Pi, also in an agent's own, which may start agents of its own. Nothing is spawned before it
// is used, except that a session in a repository with agents asks for their status.

import { join } from "node:path";

import { readJson } from "../child/files.js";
import * as agent from "./agent-command.js";
import * as agents from "./agents-command.js";
import { watchIdle } from "./idle.js";
import { registerNotices } from "./notices.js";
import { stateFolder } from "./program.js";
import { registerReports } from "./report-view.js";
import * as resume from "./resume-command.js";
import { openSession } from "./session.js";
import { watchPublished } from "./status-line.js";
import { registerTools } from "./tools.js";

const INSTANCE = Symbol.for("side-agents.pi.parent");
// The status line comes after Pi has drawn itself.
const LATER_MS = 300;

// `child` is the agent that this Pi is, or null; `version` that of Pi.
export function serveParent(pi, { environment, child, version }) {
  const instance = {};
  let session = null;
  let unwatch = () => {};

  const on = (name, handler) => {
    pi.on(name, (event, ctx) => {
      if (session === null) return;
      session.see(ctx);
      handler(event, ctx);
    });
  };
  const idle = watchIdle(on, (value) => session?.setIdle(value));

  pi.on("session_start", (_event, ctx) => {
    // The extension may be there twice, installed and by -e: the first one to come here serves this session.
    if ((globalThis[INSTANCE] ??= instance) !== instance) return;
    const linked = isLinked(environment, child);
    session = openSession(pi, ctx, { environment, version, linked });
    register(pi, session);
    idle.settle(ctx);
    unwatch = ctx.hasUI !== false && linked ? beginStatus(session, environment, child) : () => {};
  });
  pi.on("session_shutdown", () => {
    if (globalThis[INSTANCE] === instance) delete globalThis[INSTANCE];
    unwatch();
    session?.close();
    session = null;
  });
}

// False in a Pi that somebody runs in an agent's shell: it has the agent's variables and is not that agent.
function isLinked(environment, child) {
  if (!environment.PI_SIDE_AGENT_ID) return true;
  return child !== null && readJson(join(child.folder, "claim.json"))?.pid === process.pid;
}

function register(pi, session) {
  registerTools(pi, session);
  registerNotices(pi);
  registerReports(pi);
  command(pi, session, "agent", agent.DESCRIPTION, agent.agentCommand);
  command(pi, session, "agents", agents.DESCRIPTION, agents.agentsCommand);
  command(pi, session, "agent-resume", resume.DESCRIPTION, resume.resumeCommand);
}

// In its terminal Pi is not kept waiting: older Pi loses what is submitted while a command runs.
function command(pi, session, name, description, run) {
  const handler = async (text, ctx) => {
    session.see(ctx);
    const work = run(session, text).catch((error) => {
      session.toast(`/${name} failed: ${error?.message ?? error}`, "error");
    });
    if (ctx.hasUI === false) await work;
  };
  pi.registerCommand(name, { description, handler });
}

function beginStatus(session, environment, child) {
  const folder = stateFolder(session.ctx.cwd, environment);
  if (folder === null) return () => {};
  if (child !== null) {
    // Once it uses agents of its own, its companion tells it more, and sooner.
    const show = (groups) => session.hasCompanion || session.showStatus(groups);
    return watchPublished(join(folder, "status.json"), child.agentId, show);
  }
  const timer = setTimeout(() => session.start(), LATER_MS);
  return () => clearTimeout(timer);
}
