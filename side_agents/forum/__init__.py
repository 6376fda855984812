"""Durable talk between agents (reference/forum.md): rules over one SQLite file, an HTTP face, and a client."""
