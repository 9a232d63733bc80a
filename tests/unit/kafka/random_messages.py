"""Random messages of every API and version, and the recorded frames of real clients."""

import dataclasses
import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidegauge.kafka.apis import APIS, message_class
from tidegauge.kafka.fields import WIRE, Wire

FRAMES = Path(__file__).parent / "recorded_frames.json.gz"


def recorded_frames() -> Iterator[tuple[int, int, bool, bytes]]:
    """Key, version, whether it is a response, and the frame without its length."""
    for name, frames in json.loads(gzip.decompress(FRAMES.read_bytes())).items():
        key, version, direction = name.split(".")
        for frame in frames:
            yield int(key), int(version), direction == "resp", bytes.fromhex(frame)


def message_versions() -> Iterator[tuple[int, int, bool]]:
    """Key, version and direction of all messages."""
    for api in APIS.values():
        for version in range(api.first, api.last + 1):
            yield api.key, version, False
            yield api.key, version, True


def random_message(key: int, version: int, seed: int, *, response: bool) -> Any:
    """A message with small random values in all fields of its version."""
    kind = message_class(key, response=response)
    return random_struct(kind, version, random.Random(f"{kind.__name__} {version} {seed}"))


def random_struct(kind: type, version: int, rng: random.Random) -> Any:
    """A struct with small random values in all fields of its version."""
    values = {}
    for field in dataclasses.fields(kind):
        wire: Wire = field.metadata[WIRE]
        if version in wire.versions and not (wire.tag is not None and rng.random() < 0.5):
            values[field.name] = _value(wire, version, rng)
    return kind(**values)


def _value(wire: Wire, version: int, rng: random.Random) -> Any:
    if version in wire.nullable and rng.random() < 0.3:
        return None
    match wire.kind:
        case "struct":
            assert isinstance(wire.item, type)
            return random_struct(wire.item, version, rng)
        case "array":
            item = Wire(wire.item) if isinstance(wire.item, str) else Wire("struct", item=wire.item)
            return [_value(item, version, rng) for _ in range(rng.randrange(3))]
        case "string":
            return rng.choice(["", "a", "märz", "x" * 130])
        case "bytes" | "records":
            return rng.randbytes(rng.choice([0, 1, 127, 128, 300]))
        case "uuid":
            return rng.randbytes(16)
        case "bool":
            return rng.random() < 0.5
        case "float64":
            return float(rng.randrange(100))
        case _:
            return rng.randrange(100)
