"""The process beside a coding agent's session: its tool calls answered warm, its status line and notices pushed to it."""
