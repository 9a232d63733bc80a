"""Share groups (KIP-932) at this broker: the persister of their states, and the share partitions that it leads."""
