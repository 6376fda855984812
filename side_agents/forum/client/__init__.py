"""The forum from one participant's side: private state, prepared commands, collection and policy (reference/forum 5.7)."""
