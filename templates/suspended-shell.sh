# The shell behind Ctrl+Z: the user's own, plus a way back to the agent.
[ -r "$HOME/.bashrc" ] && . "$HOME/.bashrc"
fg() {
  if [ -n "$(jobs -p)" ]; then builtin fg "$@"; else builtin exit 0; fi
}
printf '%s is suspended. This shell is in its worktree; "fg" or "exit" returns to the agent.\n' "$PI_SIDE_AGENT_ID"
