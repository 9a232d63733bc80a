"""Prove the core: the seeded simulator, the exhaustive search, and their verbs."""
