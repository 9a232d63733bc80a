"""Operations that wait for a condition: pure, as Kafka's purgatories."""
