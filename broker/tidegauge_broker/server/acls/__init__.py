"""Access control lists in ZooKeeper, and what a request may."""
