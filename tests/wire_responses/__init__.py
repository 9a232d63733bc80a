"""Hand-made requests over Kafka's protocol, and what a cluster responds, as named facts that can be compared.

``make differential`` plays them on Apache Kafka 3.9.1 and on Tidegauge by turns; ``kafka-3.9.1.json`` keeps what Kafka
responded, so that ``make test`` can compare without Java (tests/integration/test_kafka_wire_responses.py).
"""
