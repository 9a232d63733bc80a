"""One module per control record of Kafka's metadata log."""
