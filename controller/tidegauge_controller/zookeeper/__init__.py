"""The controller of ZooKeeper mode: the client, the event queue and its driver, and the decisions on znodes."""
