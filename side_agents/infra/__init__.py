"""The only door to the operating system: processes, files, locks, tmux, git, time and terminal text."""
