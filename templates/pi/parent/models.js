// Which model a new agent gets, and how this session's own model is asked something short.

import { completeSimple } from "./host.js";

const LEVELS = ["off", "minimal", "low", "medium", "high", "xhigh", "max"];
const SHORT_ANSWER = 100;
// A model that cannot stop thinking needs room for it before its answer.
const THINKING_ANSWER = 1500;

// The model of this session and how hard it thinks, as Pi's --model takes it; null without a model.
export function inheritedModel(current, level) {
  if (!current) return null;
  const suffix = current.reasoning && LEVELS.includes(level) ? `:${level}` : "";
  return `${current.provider}/${current.id}${suffix}`;
}

// A request as typed: with its provider where that is clear, else as it stands. {spec, warnings}
export function resolveModel(request, { current, available }) {
  if (request.includes("/")) return { spec: request, warnings: [] };
  const { id, suffix } = splitLevel(request);
  if (current?.id === id) return { spec: `${current.provider}/${id}${suffix}`, warnings: [] };
  const providers = [...new Set(available.filter((model) => model.id === id).map((model) => model.provider))];
  if (providers.length === 1) return { spec: `${providers[0]}/${id}${suffix}`, warnings: [] };
  if (providers.includes(current?.provider)) return { spec: `${current.provider}/${id}${suffix}`, warnings: [] };
  const several = `Several providers have ${id}: ${providers.join(", ")}. Say which one, as in ${providers[0]}/${id}.`;
  return { spec: request, warnings: providers.length ? [several] : [] };
}

function splitLevel(request) {
  const cut = request.lastIndexOf(":");
  const known = cut > 0 && LEVELS.includes(request.slice(cut + 1));
  return known ? { id: request.slice(0, cut), suffix: request.slice(cut) } : { id: request, suffix: "" };
}

// Not thinking where the model allows that, else as little as it can.
export function shortAnswerOptions(model, room = 1) {
  const levels = model.thinkingLevelMap ?? {};
  if (!model.reasoning || levels.off !== null) return { maxTokens: room * SHORT_ANSWER };
  const least = LEVELS.slice(1).find((level) => levels[level] !== null) ?? "minimal";
  return { maxTokens: THINKING_ANSWER + room * SHORT_ANSWER, reasoning: least };
}

// The text that this session's model answers. Throws with the reason when there is none.
export async function ask(ctx, { system, text, room, signal }) {
  const { model, modelRegistry } = ctx;
  if (!model) throw new Error("no model is selected");
  const context = {
    systemPrompt: system,
    messages: [{ role: "user", content: [{ type: "text", text }], timestamp: Date.now() }],
  };
  const options = { ...shortAnswerOptions(model, room), signal, maxRetries: 1 };
  const message = await complete(modelRegistry, model, context, options);
  if (message.stopReason === "error" || message.stopReason === "aborted") {
    throw new Error(message.errorMessage || "the request was aborted");
  }
  const parts = message.content.filter((part) => part.type === "text").map((part) => part.text);
  return parts.join("\n").trim();
}

// Newer Pi adds the key by itself; before 0.84 an extension fetches it.
async function complete(registry, model, context, options) {
  if (typeof registry.streamSimple === "function") {
    return registry.streamSimple(model, context, options).result();
  }
  const auth = await registry.getApiKeyAndHeaders(model);
  if (!auth.ok) throw new Error(auth.error);
  return completeSimple(model, context, { ...options, apiKey: auth.apiKey, headers: auth.headers });
}
