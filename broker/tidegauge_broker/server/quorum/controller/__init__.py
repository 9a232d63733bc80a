"""The controller of a KRaft cluster around its pure decisions: its queue, its timers and the APIs that it serves."""
