"""librdkafka's mock cluster as a further column: brokers as threads of the client's process, in memory, no disk.

It speaks the protocol and keeps records, but replicates nothing; it says what a test double in one process costs.
Needs the package ``confluent-kafka``, which Tidegauge itself does not use.
"""

from __future__ import annotations

import uuid

import librdkafka
from measure import Workload

NAME = "librdkafka mock"
MOST_PARTITIONS = 4  # of a topic that the mock creates by itself


def run(workload: Workload) -> tuple[float, float]:
    """Return the records written and read per second.

    Raises:
        Unavailable: the library is missing.
    """
    library = librdkafka.library()
    producer = library.Producer({"test.mock.num.brokers": 3, **librdkafka.producer_settings("mock", workload)})
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    metadata = producer.list_topics(timeout=10)
    addresses = ",".join(f"{broker.host}:{broker.port}" for broker in metadata.brokers.values())
    produced = librdkafka.write(producer, topic, workload)
    consumer = library.Consumer({"bootstrap.servers": addresses, "group.id": "bench"})
    try:
        places = [library.TopicPartition(topic, number) for number in range(min(workload.partitions, MOST_PARTITIONS))]
        kept = 0
        for place in places:
            low, high = consumer.get_watermark_offsets(place, timeout=10)
            place.offset, kept = low, kept + high - low
        return produced, librdkafka.read(consumer, places, kept)
    finally:
        consumer.close()
