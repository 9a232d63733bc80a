"""A consumer's membership in a group: protocol bytes, assignors, the state machine, offset commits, and the shell."""
