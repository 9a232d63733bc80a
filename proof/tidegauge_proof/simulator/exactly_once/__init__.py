"""Consume, transform, produce: both coordinators and replicated partitions of data in one simulated cluster."""
