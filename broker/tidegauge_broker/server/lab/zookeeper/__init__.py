"""The lab's access to a broker's membership in ZooKeeper mode: its connection, and its session."""
