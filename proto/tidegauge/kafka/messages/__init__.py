"""One module per API: requests and responses of Kafka's protocol."""
