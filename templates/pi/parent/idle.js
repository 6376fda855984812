// When Pi waits for its user: neither a turn nor a retry nor a queued message is under way.

const TICK_MS = 20;

// Calls `changed(true|false)` with every change; the first state is busy.
export function watchIdle(on, changed) {
  let idle = false;
  let look = 0;

  const become = (value) => {
    if (idle === value) return;
    idle = value;
    changed(value);
  };
  // Newer Pi says when it has settled; older Pi is asked, and twice, since it begins queued turns a tick later.
  const settle = (ctx) => {
    const mine = (look += 1);
    let quiet = 0;
    const tick = () => {
      if (mine !== look) return;
      quiet = isQuiet(ctx) ? quiet + 1 : 0;
      if (quiet > 1) become(true);
      else setTimeout(tick, TICK_MS).unref();
    };
    setTimeout(tick, TICK_MS).unref();
  };
  const busy = () => {
    look += 1;
    become(false);
  };

  on("agent_start", busy);
  on("session_before_compact", (_event, ctx) => {
    busy();
    settle(ctx);
  });
  for (const name of ["agent_end", "agent_settled", "session_compact"]) on(name, (_event, ctx) => settle(ctx));
  return { settle };
}

function isQuiet(ctx) {
  try {
    return ctx.isIdle() && !ctx.hasPendingMessages();
  } catch {
    // The session was replaced.
    return false;
  }
}
