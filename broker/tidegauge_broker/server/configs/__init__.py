"""Keep settings current with ZooKeeper."""
