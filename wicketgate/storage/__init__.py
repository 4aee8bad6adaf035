"""Where things are kept: in memory, in SQLite, in files."""
