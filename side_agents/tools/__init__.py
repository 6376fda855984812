"""The tools that agents call: one table, of which ``side-agents tool`` and later front ends are thin faces."""
