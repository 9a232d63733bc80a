"""Consumer groups in the simulator: real coordinators on real cores, members that behave as Kafka's clients do."""
