"""The codec of the records inside a batch: aiokafka's compiled one, or its plain twin if there is no build of it.

Both offer ``RecordBatch(buffer)``, which iterates over the records of a batch (offset, timestamp, timestamp_type, key,
value, headers), and ``RecordBatchBuilder``. aiokafka's is untyped.

The code of aiokafka's package imports its whole client, which costs each verb and each node more than the codec does.
"""

from __future__ import annotations

from typing import Any

from tidegauge.late_package import run_late

RecordBatch: Any
RecordBatchBuilder: Any
try:
    run_late("aiokafka")
    from aiokafka.record.default_records import (  # pyright: ignore[reportMissingTypeStubs] - it has none
        DefaultRecordBatch,
        DefaultRecordBatchBuilder,
    )
except ModuleNotFoundError:
    from tidegauge.plain_record_codec import PlainRecordBatch, PlainRecordBatchBuilder

    RecordBatch, RecordBatchBuilder = PlainRecordBatch, PlainRecordBatchBuilder
else:
    RecordBatch, RecordBatchBuilder = DefaultRecordBatch, DefaultRecordBatchBuilder
