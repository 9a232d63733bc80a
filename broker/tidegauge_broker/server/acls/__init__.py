"""Access control lists applied to requests."""
