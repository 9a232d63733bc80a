"""A whole cluster in KRaft mode: real Raft nodes, real decisions of controllers, real broker cores and their disks."""
