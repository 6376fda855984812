#!/bin/sh
# .pi/side-agent-finish.sh: lands the work of the side agent in whose worktree it runs.
#
# Usage: side-agent-finish.sh [PARENT_CHECKOUT [AGENT_ID]] [OPTION...]
# The two arguments serve where PI_SIDE_PARENT_REPO and PI_SIDE_AGENT_ID are not set; options go to `side-agents finish`.
# Policy, target and check are settings: finish_policy, finish_target, finish_check.
#
# Exit status: 0 landed, or nothing had to be done      6 a rebase, merge, ... is in progress
#              1 misuse                                 7 the check failed
#              2 conflict, left to be resolved          8 uncommitted files are in the way
#              3 the merge lock stayed taken            9 the target could not be moved
#              4 nested: the parent has left its branch
#              5 uncommitted work                      10 nothing to land

case ${1-} in
  /*)
    PI_SIDE_PARENT_REPO=${PI_SIDE_PARENT_REPO:-$1}
    export PI_SIDE_PARENT_REPO
    shift
    case ${1-} in
      '' | -*) ;;
      *)
        PI_SIDE_AGENT_ID=${PI_SIDE_AGENT_ID:-$1}
        export PI_SIDE_AGENT_ID
        shift
        ;;
    esac
    ;;
esac

if ! command -v side-agents > /dev/null 2>&1; then
  echo "side-agent-finish: the command side-agents is not on PATH, so nothing was done." >&2
  exit 1
fi
exec side-agents finish "$@"
