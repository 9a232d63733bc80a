"""Kafka's own protocol: connections, fetch sessions, and one handler per API. Decisions are ``BrokerService``'s."""
