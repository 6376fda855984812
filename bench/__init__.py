"""Speed of side-agents, each figure beside the raw floor that was measured in the same run. See README.md."""
