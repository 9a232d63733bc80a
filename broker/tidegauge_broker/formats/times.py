"""The kind of a batch's times: the producer's (CreateTime) or the leader's (LogAppendTime)."""

from __future__ import annotations

from tidegauge.record_batch import HEADER_BYTES, LOG_APPEND_TIME_BIT, BatchHeader, Buffer, make_batch


def with_create_time(batch: Buffer, header: BatchHeader) -> bytes:
    """Return a batch that says that its times are the producer's (DefaultRecordBatch.setMaxTimestamp).

    The largest timestamp stays: it was each record's.
    """
    changed = header._replace(attributes=header.attributes & ~LOG_APPEND_TIME_BIT)
    return make_batch(changed, bytes(memoryview(batch)[HEADER_BYTES:]))
