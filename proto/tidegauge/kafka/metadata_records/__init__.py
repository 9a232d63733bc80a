"""One module per record of Kafka's metadata log."""
