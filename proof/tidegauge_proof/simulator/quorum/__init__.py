"""Histories of a quorum of controllers: the real Raft node, with disks, a network and a clock that fail."""
