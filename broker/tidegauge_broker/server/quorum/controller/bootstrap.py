"""The first metadata records of a cluster, from the file that formatting wrote.

Source: ``BootstrapDirectory``, ``BootstrapMetadata``.
"""

from __future__ import annotations

from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.compiler import MalformedMessage
from tidegauge.kafka.kraft.features import FEATURES, LATEST, METADATA_VERSION
from tidegauge.kafka.kraft.record_types import MetadataRecord, decode_record
from tidegauge_broker.metadata_log.formatting import bootstrap_records
from tidegauge_broker.metadata_log.snapshot_names import BOOTSTRAP_NAME
from tidegauge_broker.metadata_log.snapshots import read_snapshot
from tidegauge_controller.metadata.records import made


def read_bootstrap(directory: Path) -> list[MetadataRecord]:
    """Return the records of ``bootstrap.checkpoint``; without that file, this release's default levels.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, the file can't be read.
        OSError: the disk refused.
    """
    path = directory / BOOTSTRAP_NAME
    try:
        return [decode_record(value) for batch in read_snapshot(path.read_bytes()) for value in batch.values]
    except FileNotFoundError:
        levels = {METADATA_VERSION: LATEST} | {name: one.default_at(LATEST) for name, one in FEATURES.items()}
        return [made(record) for record in bootstrap_records(levels, ())]
    except (MalformedMessage, TidegaugeError) as problem:
        text = problem.message if isinstance(problem, TidegaugeError) else str(problem)
        raise TidegaugeError(
            ErrorCode.CORRUPT_MESSAGE, f"{path} can't be used: {text}; format the directory again"
        ) from None
