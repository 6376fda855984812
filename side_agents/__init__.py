"""side-agents: hand each idea to a coding agent in its own worktree, branch and tmux window."""

# A constant, because reading it from the installed metadata costs more than the whole CLI framework.
__version__ = "0.1.0"
