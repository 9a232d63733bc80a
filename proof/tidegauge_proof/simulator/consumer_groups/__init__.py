"""Histories of a consumer group (KIP-848): real coordinators, members as Kafka's consumer behaves, and a checker."""
