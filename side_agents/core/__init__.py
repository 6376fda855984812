"""The use cases and the rules: what an orchestrator of side agents is."""
