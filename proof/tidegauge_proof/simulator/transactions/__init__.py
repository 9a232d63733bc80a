"""Transaction coordinators on a cluster that fails, with producers and model partitions for their data."""
