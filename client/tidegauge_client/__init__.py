"""Client library: producer, consumer, admin, and the command line."""
