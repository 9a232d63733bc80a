"""The shell: asyncio, gRPC and ZooKeeper around the core. It translates and executes; it decides nothing."""
