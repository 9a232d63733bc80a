"""Files that Apache Kafka 4.3.1 wrote, with what its own kafka-dump-log printed of them."""

import functools
import gzip
import json
from pathlib import Path
from typing import NamedTuple

FILES = Path(__file__).parent / "kafka_files.json.gz"


class KafkaFile(NamedTuple):
    """A file's bytes, and the dump without its first line, which names the path."""

    data: bytes
    dump: str | None


@functools.cache
def kafka_files() -> dict[str, KafkaFile]:
    """Return all files by their names."""
    found = json.loads(gzip.decompress(FILES.read_bytes()))
    return {name: KafkaFile(bytes.fromhex(file["hex"]), file.get("dump")) for name, file in found.items()}
