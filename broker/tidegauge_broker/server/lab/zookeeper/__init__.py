"""What the lab does to a broker's membership where ZooKeeper keeps it: its connection, and its session."""
