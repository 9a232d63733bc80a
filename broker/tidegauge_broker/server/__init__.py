"""The shell: asyncio, wires, disks and the cluster's metadata around the core. It translates and executes; it decides nothing."""
