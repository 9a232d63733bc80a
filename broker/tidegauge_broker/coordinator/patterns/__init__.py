"""Regular expressions of RE2's syntax, for names that clients ask for: read, and run as automata in bounded time."""
