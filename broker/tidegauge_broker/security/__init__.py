"""A client's identity and permissions: decisions without a clock, a network or ZooKeeper."""
