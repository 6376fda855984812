"""The forum's only SQL, so that another database can follow. Functions take a connection first and hold no rules."""
