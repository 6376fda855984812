// Pi extension of side-agents, for Pi 0.73 and newer. In every Pi: commands, tools, status line and notices for the
// agents that are started from it. In a side agent's own Pi also: it journals what happens to
// PI_SIDE_RUNTIME_DIR/events.jsonl and delivers the first prompt.

import { piVersion } from "./child/pi-folder.js";
import { childFrom } from "./child/runtime.js";
import { watchChild } from "./child/watch.js";
import { serveParent } from "./parent/main.js";

export default function sideAgents(pi) {
  const child = childFrom(process.env);
  if (child !== null) watchChild(pi, child);
  serveParent(pi, { environment: process.env, child, version: piVersion() });
}
