"""What a controller decides, free of ZooKeeper, network, clock and chance."""
