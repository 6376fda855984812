// side-agents for Pi, written by `side-agents install pi`; `side-agents install pi --uninstall` removes it.
// It loads the extension from where side-agents is installed, so that an upgrade of side-agents reaches Pi by itself.

const INSTALLATION = {};

import { accessSync } from "node:fs";

export default async function sideAgentsInstalled(pi) {
  const { extension, skills, program } = INSTALLATION;
  const missing = [extension, program, ...skills].filter((path) => !isThere(path));
  pi.on("resources_discover", () => ({ skillPaths: skills.filter(isThere) }));
  if (missing.length > 0) pi.on("session_start", (_event, ctx) => ctx.ui.notify(advice(missing), "warning"));
  // The Pi of a side agent is started with the extension of the side-agents that started it; once is enough.
  if (missing.includes(extension) || isNamed(process.argv)) return;
  process.env.SIDE_AGENTS_PROGRAM ??= program;
  const loaded = await import(extension);
  await loaded.default(pi);
}

function isThere(path) {
  try {
    accessSync(path);
    return true;
  } catch {
    return false;
  }
}

function isNamed(args) {
  return args.some((name, place) => /^(-e|--extension)$/.test(name) && /\/pi\/side-agents\.js$/.test(args[place + 1] ?? ""));
}

function advice(missing) {
  return (
    `side-agents was moved or removed: ${missing[0]} is gone. \`side-agents install pi\` makes it work again; ` +
    `if you no longer use side-agents, remove this file: ${import.meta.filename ?? "side-agents.js in Pi's extensions"}`
  );
}
