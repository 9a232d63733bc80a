"""One consumer group: its states, its members, its join and sync phases."""
