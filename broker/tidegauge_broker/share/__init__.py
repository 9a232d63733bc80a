"""Share partitions (KIP-932): the records of a partition in flight to members of a share group, at its leader."""
