"""The shell of a quorum's node: its log, its files, its links, its listener and its process (KIP-595)."""
