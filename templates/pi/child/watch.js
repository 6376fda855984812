// What the extension does in the Pi of a side agent: every event of Pi that matters becomes a line of the journal.

import { watchDialogs } from "./dialogs.js";
import { warnOfOldFinishScript } from "./nested-finish.js";
import { piVersion, projectTrust } from "./pi-folder.js";
import { tellResumeNotice } from "./resume-notice.js";
import { claim, clip, inputEvent, kickoffText, linkSession } from "./runtime.js";
import { createTurns } from "./turns.js";

// Pi takes messages a few ticks after session_start and after the end of a turn; 0.73 loses what is submitted before.
const TICK_MS = 10;
const KICKOFF_START_MS = 15_000;
// An automatic compaction belongs to its turn; when it fails, Pi 0.73 does not say so.
const COMPACTION_MS = 120_000;
const CONTINUE_MS = 300;
const INSTANCE = Symbol.for("side-agents.pi.child");

export function watchChild(pi, child) {
  const watch = createWatch(pi, child.journal);
  const turns = createTurns(child.journal);
  watchSession(pi, child, watch, turns);
  watchTurns(watch, turns);
  watchCompaction(child.journal, watch, turns);
  watchMessages(child.journal, watch);
}

// Handlers that cannot fail into Pi. `on` runs them only in the process and instance that are the agent.
function createWatch(pi, journal) {
  const watch = {
    active: false,
    guard(name, action, otherwise) {
      try {
        return action();
      } catch (error) {
        if (watch.active) journal({ type: "extension_error", event: name, error: clip(error?.stack ?? error) });
        return otherwise;
      }
    },
    always(name, handler, otherwise) {
      pi.on(name, (event, ctx) => watch.guard(name, () => handler(event, ctx), otherwise));
    },
    on(name, handler) {
      watch.always(name, (event, ctx) => (watch.active ? handler(event, ctx) : undefined));
    },
    later(name, delay, action) {
      setTimeout(() => watch.guard(name, () => watch.active && action()), delay).unref();
    },
  };
  return watch;
}

function watchSession(pi, child, watch, turns) {
  const { journal } = child;
  const instance = {};

  watch.always("project_trust", (event) => projectTrust(event.cwd, child), { trusted: "no" });
  watch.always("session_start", (event, ctx) => {
    // A copy of this extension may also be installed for all of Pi: the first one to come here speaks.
    const speaker = (globalThis[INSTANCE] ??= instance);
    watch.active = speaker === instance && isInteractive(ctx) && claim(child);
    if (!watch.active) return;
    const version = piVersion();
    journal({
      type: "session",
      sessionId: ctx.sessionManager.getSessionId(),
      sessionFile: ctx.sessionManager.getSessionFile() ?? null,
      pid: process.pid,
      reason: event.reason,
      version,
    });
    linkSession(pi, ctx, child);
    watchDialogs(ctx.ui, version, watch, journal);
    watch.later("ready", 2 * TICK_MS, () => {
      // What was said at the start of the process is not said again after /new or /reload.
      if (event.reason === "startup") tellBeforehand(pi, ctx, child, watch);
      journal({ type: "ready" });
      const text = event.reason === "startup" ? kickoffText(child) : "";
      if (!text) return;
      pi.sendUserMessage(text);
      watch.later("kickoff", KICKOFF_START_MS, () => turns.expectStarted());
    });
  });
  watch.always("session_shutdown", (event) => {
    if (globalThis[INSTANCE] === instance) delete globalThis[INSTANCE];
    if (!watch.active) return;
    if (event.reason === undefined || event.reason === "quit") journal({ type: "quit", reason: "quit" });
    else turns.end({ outcome: "aborted" });
    watch.active = false;
  });
}

// In the conversation before the first prompt, and before anybody can send anything.
function tellBeforehand(pi, ctx, child, watch) {
  watch.guard("resume-notice", () => tellResumeNotice(pi, ctx, child));
  watch.guard("finish-script", () => warnOfOldFinishScript(pi, ctx, child));
}

function watchTurns(watch, turns) {
  watch.on("agent_start", () => turns.start());
  watch.on("message_end", (event) => turns.note(event.message));
  watch.on("agent_end", (_event, ctx) => {
    turns.awaitSettled(ctx, (look) => watch.later("agent_end", TICK_MS, look));
  });
  watch.on("agent_settled", (event) => turns.end(event.aborted ? { outcome: "aborted" } : {}));
}

// The conversation goes on in the same file; what was said before is only there as a summary.
function watchCompaction(journal, watch, turns) {
  watch.on("session_before_compact", () => turns.holdFor(COMPACTION_MS));
  watch.on("session_compact", () => {
    turns.holdFor(CONTINUE_MS);
    journal({ type: "compacted" });
  });
}

function watchMessages(journal, watch) {
  watch.on("input", (event, ctx) => {
    const queued = event.streamingBehavior !== undefined || !ctx.isIdle();
    journal(inputEvent(event.text, queued ? "queued" : "started", event.source));
  });
  watch.on("user_bash", (event) => {
    const mark = event.excludeFromContext ? "!!" : "!";
    journal(inputEvent(mark + event.command, "started", "interactive"));
  });
}

// Only an interactive Pi can be the agent: one in print mode inherits the variables, too.
function isInteractive(ctx) {
  return ctx.hasUI !== false && (ctx.mode === undefined || ctx.mode === "tui");
}
