"""Access control lists on gRPC listeners: each call needs what Kafka's API of the same name needs, by its guard."""
