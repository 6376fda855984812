// Pi extension of side-agents, for Pi 0.73 and newer. In a side agent's own Pi it journals what happens to
// PI_SIDE_RUNTIME_DIR/events.jsonl and delivers the first prompt; in any other Pi it does nothing.
// It starts no process, and no failure of it reaches Pi.

import { watchChild } from "./child/watch.js";
import { childFrom } from "./child/runtime.js";

export default function sideAgents(pi) {
  const child = childFrom(process.env);
  if (child !== null) watchChild(pi, child);
}
