"""Who a client is and what it may do: decisions without a clock, a network or ZooKeeper."""
