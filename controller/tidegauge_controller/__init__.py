"""The controller: pure decisions, and their shell on ZooKeeper."""
