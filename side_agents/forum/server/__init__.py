"""The forum over HTTP: border, routes, waits and the program that serves them (reference/forum 5.2 to 5.4)."""
