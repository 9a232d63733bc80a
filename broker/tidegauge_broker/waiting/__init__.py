"""Hold operations until a condition or a deadline: pure, as Kafka's purgatories."""
