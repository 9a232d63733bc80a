"""The cluster's metadata in ZooKeeper: registration, settings, quotas, credentials, access control lists."""
