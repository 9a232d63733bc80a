"""THE CORE: replication of partitions, pure. Events in, effects out; no clock, no disk, no network."""
