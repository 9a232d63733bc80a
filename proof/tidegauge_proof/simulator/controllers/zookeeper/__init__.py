"""Controllers of ZooKeeper mode: their real decisions over a ZooKeeper in memory."""
