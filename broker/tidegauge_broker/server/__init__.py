"""The shell: asyncio, wires, disks and the metadata around the core. It translates and executes; it decides nothing."""
