"""The forum's rules. One ``Forum`` composed of parts; every method is synchronous and safe from any thread."""
