"""The command line: each command parses, calls a use case and renders what it returns. Nothing else prints."""
