"""Two libraries that share no code with ours read what we encode and write the same bytes: kio and kafka-python."""

import importlib

import pytest
from tests.unit.kafka.random_messages import message_versions, random_message

from tidegauge.kafka.apis import API_VERSIONS, APIS, snake
from tidegauge.kafka.frames import encode, joined

MESSAGES = list(message_versions())
SEEDS = range(3)
UNKNOWN_TO_KAFKA_PYTHON = {4, 5, 6, 7, 38, 39, 40, 41, 56, 67, 68, 69, *range(76, 80), *range(83, 88), *range(90, 93)}
"""Requests among brokers, delegation tokens, consumer groups of KIP-848 and share groups."""


@pytest.mark.parametrize("key", APIS, ids=lambda key: APIS[key].name)
def test_kio_reads_what_we_write_and_writes_the_same_bytes(key: int):
    serial = pytest.importorskip("kio.serial")
    api = APIS[key]
    for version, response in ((version, response) for asked, version, response in MESSAGES if asked == key):
        direction = "response" if response else "request"
        try:
            module = importlib.import_module(f"kio.schema.{snake(api.name)}.v{version}.{direction}")
        except ModuleNotFoundError:
            continue  # kio has the versions of Kafka 4 (KIP-896)
        entity = getattr(module, f"{api.name}{direction.capitalize()}")
        read, write = serial.entity_reader(entity), serial.entity_writer(entity)
        for seed in SEEDS:
            body = joined(encode(key, version, random_message(key, version, seed, response=response)))
            value, size = read(body, 0)
            out = Collected()
            write(out, value)
            assert (size, bytes(out.data)) == (len(body), body), (version, direction, value)


class Collected:
    """The buffer that kio writes to."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, part: bytes) -> None:
        self.data += part


def _kafka_python(name: str) -> type:
    for module in ("producer", "consumer", "metadata", "admin", "sasl"):
        found = getattr(importlib.import_module(f"kafka.protocol.{module}"), name, None)
        if found is not None:
            return found
    raise LookupError(name)


@pytest.mark.parametrize(
    "key", [key for key in APIS if key not in UNKNOWN_TO_KAFKA_PYTHON], ids=lambda key: APIS[key].name
)
def test_kafka_python_reads_what_we_write_and_writes_the_same_bytes(key: int):
    pytest.importorskip("kafka.protocol")
    api = APIS[key]
    classes = {
        response: _kafka_python(f"{api.name}{'Response' if response else 'Request'}") for response in (False, True)
    }
    compared = 0
    for version, response in ((version, response) for asked, version, response in MESSAGES if asked == key):
        library = classes[response]
        if key == API_VERSIONS and response:
            continue  # kafka-python reads no throttle time there
        if not library.min_version <= version <= library.max_version:
            continue
        for seed in SEEDS:
            body = joined(encode(key, version, random_message(key, version, seed, response=response)))
            value = library.decode(body, version=version)
            value._header = None
            assert bytes(value.encode(version=version)) == body, (version, response, value)
            compared += 1
    assert compared
