// Dialogs that extensions put to the user: the agent is waiting until they are answered.

import { clip } from "./runtime.js";

const KINDS = ["select", "confirm", "input", "editor", "custom"];
const LISTENER = Symbol.for("side-agents.pi.dialogs");

// Newer Pi (0.84) tells of its dialogs. In older ones the functions that open them are wrapped, once for all sessions.
export function watchDialogs(ui, version, watch, journal) {
  const dialogs = createDialogs(journal);
  if (tellsOfDialogs(version)) {
    watch.on("ui_prompt_start", (event) => dialogs.opened(event.kind, event.title));
    watch.on("ui_prompt_end", () => dialogs.closed());
    return;
  }
  const first = ui[LISTENER] === undefined;
  ui[LISTENER] = (name, action) => watch.guard(name, () => watch.active && action(dialogs));
  if (!first) return;
  for (const kind of KINDS) {
    if (typeof ui[kind] === "function") ui[kind] = wrapped(ui, kind, ui[kind].bind(ui));
  }
}

function wrapped(ui, kind, open) {
  return async (...args) => {
    ui[LISTENER](kind, (dialogs) => dialogs.opened(kind, args[0]));
    try {
      return await open(...args);
    } finally {
      ui[LISTENER](kind, (dialogs) => dialogs.closed());
    }
  };
}

function createDialogs(journal) {
  let open = 0;
  return {
    opened(kind, title) {
      open += 1;
      if (open > 1) return;
      const reason = kind === "confirm" ? "permission" : "question";
      journal({ type: "waiting", for: reason, text: clip(typeof title === "string" ? title : "") });
    },
    closed() {
      open = Math.max(0, open - 1);
      if (open === 0) journal({ type: "resumed" });
    },
  };
}

function tellsOfDialogs(version) {
  const [major, minor] = String(version ?? "").split(".").map(Number);
  return major > 0 || minor >= 84;
}
