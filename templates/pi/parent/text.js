// Text from people, models and agents, made fit for a screen or a message.

// CSI; OSC, DCS, SOS, PM and APC up to their end or the end of the line; other escapes. Each also in its 8-bit form.
const ESCAPES = new RegExp(
  "(?:\\x1b\\[|\\x9b)[0-?]*[ -/]*[@-~]?|" +
    "(?:\\x1b[\\]PX^_]|[\\x9d\\x90\\x98\\x9e\\x9f])[^\\x07\\x1b\\x9c\\n]*(?:\\x07|\\x1b\\\\|\\x9c)?|" +
    "\\x1b[ -/]*[0-~]?",
  "g",
);
// Controls but tab and newline, and what turns the direction of text around.
const CONTROLS = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/g;

// Any value as text without terminal escapes and controls; "" for what is no text.
export function plain(value) {
  const text = typeof value === "string" ? value : typeof value === "number" ? String(value) : "";
  return text.replace(/\r\n?/g, "\n").replace(ESCAPES, "").replace(CONTROLS, "");
}

export function oneLine(value, limit = 220) {
  return clip(plain(value).replace(/\s+/g, " ").trim(), limit);
}

// At most `limit` characters, the ellipsis included; no character is cut in half.
export function clip(text, limit) {
  if (text.length <= limit) return text;
  const characters = [...text.slice(0, 2 * limit + 2)];
  return characters.length <= limit ? characters.join("") : `${characters.slice(0, limit - 1).join("").trimEnd()}…`;
}

// The first lines, and how many more there are.
export function head(value, lines, limit = 2000) {
  const all = clip(plain(value).trim(), limit).split("\n").map((line) => line.trimEnd());
  return { lines: all.slice(0, lines), more: Math.max(0, all.length - lines) };
}

export function indent(text, by = "  ") {
  return text.split("\n").map((line) => (line ? by + line : line)).join("\n");
}

export function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}
