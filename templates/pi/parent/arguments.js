// The arguments of /agent: flags only at the beginning, "--" ends them, all the rest is the task.

export const USAGE = "Usage: /agent [-model MODEL] [-mode NAME] [-with-changes] [--] TASK";

// {task, model?, mode?, withChanges?} or {error}.
export function parseAgentArguments(text) {
  const found = {};
  let rest = text.trim();
  for (;;) {
    const bare = /^--?with-changes(?:\s+|$)/.exec(rest);
    const flag = bare ?? /^--?(model|mode)(?:[ \t=]+|$)/.exec(rest);
    if (flag === null) break;
    if (flag === bare) {
      found.withChanges = true;
      rest = rest.slice(bare[0].length);
      continue;
    }
    const value = /^\S+/.exec(rest.slice(flag[0].length))?.[0];
    if (value === undefined) return { error: `-${flag[1]} needs a value. ${USAGE}` };
    found[flag[1]] = value;
    rest = rest.slice(flag[0].length + value.length).trim();
  }
  const task = rest.replace(/^--(?:\s+|$)/, "").trim();
  return task ? { ...found, task } : { error: `There is no task. ${USAGE}` };
}
