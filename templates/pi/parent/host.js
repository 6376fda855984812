// All that is taken from Pi's own packages. Newer Pi still answers to their old names.

import * as agent from "@mariozechner/pi-coding-agent";
import * as ai from "@mariozechner/pi-ai";
import { Text } from "@mariozechner/pi-tui";

export const { convertToLlm, serializeConversation, SessionManager, SessionSelectorComponent } = agent;
export const { completeSimple } = ai;

// A component that shows lines; it wraps what is too long.
export function textComponent(text, paddingX = 0) {
  return new Text(text, paddingX, 0);
}
