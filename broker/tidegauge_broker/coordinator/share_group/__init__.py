"""Groups of the share protocol (KIP-932), an extension of ZooKeeper mode."""
