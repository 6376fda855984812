// Files as the extension needs them: read without failing, created once or not at all.

import { linkSync, readFileSync, realpathSync, unlinkSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";

// Create a file that nobody has created yet; it is complete as soon as it can be seen.
export function createOnce(path, content) {
  const draft = `${path}.${process.pid}`;
  writeFileSync(draft, content, { mode: 0o600 });
  try {
    linkSync(draft, path);
    return true;
  } catch (error) {
    if (error.code === "EEXIST") return false;
    throw error;
  } finally {
    unlinkSync(draft);
  }
}

export function readText(path) {
  try {
    return readIfThere(path) ?? "";
  } catch {
    return "";
  }
}

// null when there is no such file; throws when there is one that cannot be read.
export function readIfThere(path) {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if (error.code === "ENOENT") return null;
    throw error;
  }
}

export function readJson(path) {
  try {
    return JSON.parse(readText(path));
  } catch {
    return null;
  }
}

export function realPath(path) {
  try {
    return realpathSync(path);
  } catch {
    return resolve(path);
  }
}
