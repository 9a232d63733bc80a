"""Register in ZooKeeper and speak to the controller."""
