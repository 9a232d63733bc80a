"""Behind the ports: a cluster whose metadata are in the log of a quorum of controllers (KRaft)."""
