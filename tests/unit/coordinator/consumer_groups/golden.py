"""Stored data of Apache Kafka 4.3.1, beside this module."""

import gzip
import json
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent


def stored(name: str) -> bytes:
    return gzip.decompress((_HERE / name).read_bytes())


def story() -> Any:
    """Requests to a broker of Kafka 4.3.1 with its responses, and the records that it wrote, in batches."""
    return json.loads(stored("story_of_kafka.json.gz"))


def migration() -> Any:
    """Requests of classic and consumer members to one group, as ``story``."""
    return json.loads(stored("migration_of_kafka.json.gz"))
