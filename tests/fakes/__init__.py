"""Stand-ins for what the tests must not reach: a model service."""
