"""The controller's decisions, independent of ZooKeeper, network, clock and chance."""
