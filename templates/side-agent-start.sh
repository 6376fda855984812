#!/bin/sh
# .pi/side-agent-start.sh: runs in the worktree of a new side agent, before its client starts.
#
# It is sourced: what it exports reaches the agent; a failure, also a plain `exit 1`, keeps the agent from starting.
# Arguments: the parent's checkout, the worktree, the agent's id.
# The worktree is on its branch and its commit already. Do not reset, fetch or move branches here.

# Where the agent's work lands. A nested agent lands on the branch of the agent that started it.
side_agent_target=main
side_agent_target=${PI_SIDE_PARENT_BRANCH:-$side_agent_target}

side_agent_branch=$(git symbolic-ref --quiet --short HEAD) || side_agent_branch=
if [ -z "$side_agent_branch" ]; then
  echo "side-agent-start: ${2:-$PWD} is on no branch." >&2
  exit 1
fi
if [ "$side_agent_branch" = "$side_agent_target" ]; then
  echo "side-agent-start: ${2:-$PWD} is on $side_agent_target itself, the branch that work lands on." >&2
  exit 1
fi
echo "agent ${3:-${PI_SIDE_AGENT_ID:-?}}: branch $side_agent_branch, lands on $side_agent_target, at $(git rev-parse --short HEAD)"

# The project's own preparations: install packages, copy environment files, run migrations.
if [ -x .pi/side-agent-bootstrap.sh ]; then
  .pi/side-agent-bootstrap.sh "$@" || exit
fi
