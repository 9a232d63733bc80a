"""One module per type of record of Kafka's coordinators: key and value."""
