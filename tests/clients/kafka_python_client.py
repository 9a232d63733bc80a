"""Produce or consume with kafka-python, in a process of its own.

kafka-python leaves the sockets of its failed connections to the garbage collector. In the process of the tests that
would be the failure of whichever test runs when the collector's turn comes.

    kafka_python_client.py produce SERVERS TOPIC COUNT    prints "acknowledged" and the offset, a line for each record
    kafka_python_client.py consume SERVERS TOPIC COUNT    prints a JSON object: the values and the end offset
"""

from __future__ import annotations

import json
import sys

import kafka

LIMIT_SECONDS = 60.0


def produce(servers: list[str], topic: str, count: int) -> None:
    """Produce COUNT records to partition 0 and print each acknowledgement as it comes, in offset order."""
    producer = kafka.KafkaProducer(bootstrap_servers=servers, acks="all", retry_backoff_ms=100, linger_ms=1)
    sent = []
    for number in range(count):
        sent.append(producer.send(topic, b"record-%04d" % number, partition=0))
        if len(sent) == 20:
            acknowledge(sent)
    producer.flush(LIMIT_SECONDS)
    acknowledge(sent)
    producer.close()


def acknowledge(sent: list[kafka.producer.future.FutureRecordMetadata]) -> None:
    """Wait for every record in the list, print its offset, and empty the list."""
    for one in sent:
        print("acknowledged", one.get(LIMIT_SECONDS).offset, flush=True)
    sent.clear()


def consume(servers: list[str], topic: str, count: int) -> None:
    """Read partition 0 from the beginning until there are COUNT records, and print them with the end offset."""
    consumer = kafka.KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False)
    at = kafka.TopicPartition(topic, 0)
    consumer.assign([at])
    consumer.seek_to_beginning(at)
    found: list[str] = []
    while len(found) < count:
        found += [record.value.decode() for records in consumer.poll(500).values() for record in records]
    print(json.dumps({"values": found, "end_offset": consumer.end_offsets([at])[at]}))
    consumer.close()


if __name__ == "__main__":
    action, servers, topic, count = sys.argv[1:]
    {"produce": produce, "consume": consume}[action](servers.split(","), topic, int(count))
