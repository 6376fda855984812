// Turns as a user sees them: from the message to the moment Pi waits again, retries and compaction included.

import { join } from "node:path";

import { readJson } from "./files.js";
import { agentSettings } from "./pi-folder.js";
import { clip } from "./runtime.js";

const RETRY_MARGIN_MS = 1_000;

// What Pi 0.73 retries by itself.
const RETRYABLE = new RegExp(
  "overloaded|provider.?returned.?error|rate.?limit|too many requests|429|500|502|503|504|service.?unavailable|" +
    "server.?error|internal.?error|network.?error|connection.?(error|refused|lost)|websocket.?(closed|error)|" +
    "other side closed|fetch failed|upstream.?connect|reset before headers|socket hang up|ended without|" +
    "http2 request did not get a response|timed? out|timeout|terminated|retry delay",
  "i",
);

export function createTurns(journal) {
  let running = false;
  let everStarted = false;
  let last = {};
  let retries = 0;
  let notBefore = 0;
  let quietTicks = 0;
  let wait = 0;

  const turns = {
    start() {
      wait += 1;
      everStarted = true;
      if (running) return;
      running = true;
      last = {};
      journal({ type: "turn_start" });
    },
    note(message) {
      if (message?.role !== "assistant") return;
      last = outcomeOf(message);
      if (last.outcome !== "error") retries = 0;
    },
    end(override) {
      wait += 1;
      retries = 0;
      if (!running) return;
      running = false;
      journal({ type: "turn_end", outcome: "completed", ...last, ...override });
    },
    holdFor(milliseconds) {
      notBefore = Date.now() + milliseconds;
    },
    // Newer Pi says agent_settled; before 0.80 the end is seen by asking until Pi is idle with nothing queued.
    awaitSettled(ctx, schedule) {
      const mine = (wait += 1);
      quietTicks = 0;
      const pause = retryPause(last, retries, ctx.cwd);
      if (pause > 0) retries += 1;
      notBefore = Math.max(notBefore, Date.now() + pause);
      const look = () => {
        if (!running || mine !== wait) return;
        const quiet = Date.now() >= notBefore && ctx.isIdle() && !ctx.hasPendingMessages();
        quietTicks = quiet ? quietTicks + 1 : 0;
        if (quietTicks > 1) turns.end({});
        else schedule(look);
      };
      schedule(look);
    },
    expectStarted() {
      if (everStarted) return;
      const text = "Pi did not start a turn for the first prompt, often for want of a model or key; its window says why.";
      journal({ type: "turn_end", outcome: "error", text });
    },
  };
  return turns;
}

function outcomeOf(message) {
  if (message.stopReason === "aborted") return { outcome: "aborted" };
  if (message.stopReason === "error") {
    return { outcome: "error", text: clip(message.errorMessage || "unknown error") };
  }
  const parts = Array.isArray(message.content) ? message.content : [];
  const text = clip(parts.filter((part) => part.type === "text").map((part) => part.text).join("\n").trim());
  return text ? { outcome: "completed", text } : { outcome: "completed" };
}

// Milliseconds until a retry of Pi 0.73 has begun, 0 when it will not retry. It tells nobody that it is going to.
function retryPause(last, retries, cwd) {
  if (last.outcome !== "error" || !RETRYABLE.test(last.text)) return 0;
  const project = readJson(join(cwd, ".pi", "settings.json"))?.retry;
  const retry = { enabled: true, maxRetries: 3, baseDelayMs: 2000, ...agentSettings().retry, ...project };
  if (!retry.enabled || retries >= retry.maxRetries) return 0;
  return retry.baseDelayMs * 2 ** retries + RETRY_MARGIN_MS;
}
