// The tools of side-agents for this session's model: texts and schemas from tools.json, the work by the companion.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import { textComponent } from "./host.js";
import { drawCall, drawResult } from "./render.js";

const TABLE = fileURLToPath(new URL("../tools.json", import.meta.url));

// `session.callTool(name, input, signal)` gives the answer.
export function registerTools(pi, session) {
  for (const { name, description, snippet, parameters } of JSON.parse(readFileSync(TABLE, "utf8"))) {
    pi.registerTool({
      name,
      label: name,
      description,
      promptSnippet: snippet,
      parameters,
      async execute(_callId, input, signal, update) {
        // Until the first of them Pi draws no result, and a wait should be seen to wait.
        update?.({ content: [], details: undefined });
        const answer = await session.callTool(name, withoutNulls(input), signal);
        return { content: [{ type: "text", text: JSON.stringify(answer, null, 2) }], details: answer };
      },
      renderCall: (args, theme, context) =>
        textComponent(drawCall(name, args, paintOf(theme), context?.expanded)),
      renderResult: (result, options, theme) =>
        textComponent(drawResult(name, result?.details, options, paintOf(theme))),
    });
  }
}

function paintOf(theme) {
  return { color: (role, text) => theme.fg(role, text), bold: (text) => theme.bold(text) };
}

// Some models write null where they mean nothing.
function withoutNulls(input) {
  return Object.fromEntries(Object.entries(input ?? {}).filter(([, value]) => value !== null));
}
