"""Access control lists: what they say, and what follows from them."""
