"""Labs: questions about replication, groups and transactions, tried on a live cluster that checks the result itself."""
