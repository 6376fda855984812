// A nested agent lands on its parent's branch. A finish script from before there were nested agents does not know that.

import { join } from "node:path";

import { plain } from "../parent/text.js";
import { readText } from "./files.js";

const SCRIPT = ".pi/side-agent-finish.sh";
const ENTRY = "side-agent-finish-warning";
// The shipped script leaves everything to the command, which looks at the parent itself.
const KNOWS_PARENTS = /PI_SIDE_PARENT_BRANCH|side-agents finish/;

// Warn user and agent of such a script, before the first prompt. The agent is told once in a conversation.
export function warnOfOldFinishScript(pi, ctx, { parentAgentId, parentBranch }) {
  if (!parentAgentId) return;
  const script = readText(join(ctx.cwd, SCRIPT));
  if (!script || KNOWS_PARENTS.test(script)) return;
  const what = `${SCRIPT} is too old for nested agents: it does not look at PI_SIDE_PARENT_BRANCH`;
  ctx.ui.notify(`${what}. \`side-agents setup --upgrade\` in the main checkout brings it up to date.`, "warning");
  if (ctx.sessionManager.getEntries().some((entry) => entry.customType === ENTRY)) return;
  const target = parentBranch ? `the branch of your parent, ${parentBranch}` : "the branch of your parent";
  const content =
    `${what}. Do not run it as it is: it would land your work past your parent, the side agent ${parentAgentId}. ` +
    `Your work belongs on ${target}: land it with \`side-agents finish\`, or commit and report that it is to be merged by hand.`;
  pi.sendMessage({ customType: ENTRY, content: plain(content), display: true }, { triggerTurn: false });
}
