// Where the side-agents program and the state of this repository lie.

import { accessSync, constants, existsSync, readFileSync, statSync } from "node:fs";
import { delimiter, dirname, join, resolve } from "node:path";

export const MISSING = {
  ok: false,
  code: "tool-missing",
  error: "The program side-agents is not on the PATH of this Pi. Nothing was done.",
  hint: "Install it with `pipx install side-agents` and start Pi anew, or set SIDE_AGENTS_PROGRAM to its path.",
};

// The path of the program, null when there is none.
export function findProgram(environment) {
  const named = environment.SIDE_AGENTS_PROGRAM;
  if (named) return isProgram(named) ? named : null;
  const folders = (environment.PATH ?? "").split(delimiter).filter(Boolean);
  return folders.map((folder) => join(folder, "side-agents")).find(isProgram) ?? null;
}

// The state folder, null where side agents were never used. In a linked worktree it is that of the main repository.
export function stateFolder(cwd, environment) {
  const root = environment.PI_SIDE_AGENTS_ROOT || repositoryRoot(cwd);
  const folder = root && join(root, ".pi", "side-agents");
  return folder && existsSync(join(folder, "registry.json")) ? folder : null;
}

function repositoryRoot(cwd) {
  for (let place = resolve(cwd); ; place = dirname(place)) {
    const git = join(place, ".git");
    if (existsSync(git)) return mainRepository(git) ?? place;
    if (place === dirname(place)) return null;
  }
}

// A linked worktree has a file that names REPOSITORY/.git/worktrees/NAME.
function mainRepository(git) {
  if (statSync(git).isDirectory()) return null;
  const named = /^gitdir: (.*)$/m.exec(readFileSync(git, "utf8"))?.[1];
  return named ? (/^(.*)\/\.git\/worktrees\/[^/]+$/.exec(resolve(dirname(git), named))?.[1] ?? null) : null;
}

function isProgram(path) {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}
