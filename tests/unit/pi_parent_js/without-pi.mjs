// Stands in for Pi's own packages, which only Pi provides: modules can be loaded, and what they draw is plain text.

import { register } from "node:module";

const STANDINS = {
  "@mariozechner/pi-coding-agent": `
    export const convertToLlm = (messages) => messages;
    export const serializeConversation = (messages) => messages.map((each) => each.role + ": " + each.content).join("\\n");
    export class SessionManager {
      static open(file) {
        return { appendSessionInfo: (title) => globalThis.retitled.push([file, title]) };
      }
    }
    export class SessionSelectorComponent {
      constructor(...given) {
        this.given = given;
      }
    }`,
  "@mariozechner/pi-ai": "export const completeSimple = (...args) => globalThis.completeSimple(...args);",
  "@mariozechner/pi-tui": "export class Text { constructor(text) { this.text = text; } }",
};
const sources = new Map(
  Object.entries(STANDINS).map(([name, source]) => [name, `data:text/javascript,${encodeURIComponent(source)}`]),
);

register(`data:text/javascript,${encodeURIComponent(`
  const sources = new Map(${JSON.stringify([...sources])});
  export const resolve = (name, context, next) =>
    sources.has(name) ? { url: sources.get(name), shortCircuit: true } : next(name, context);
`)}`);
