"""Histories of a share group (KIP-932): real share partitions and coordinators on brokers that die, and a checker."""
