"""Which requests only read: nothing of a coordinator can have changed where its decision about one of them fails.

Everything else changes state in place while it is decided, so that a failure in the midst leaves what cannot be trusted
(docs/adr/0023-a-defect-in-a-coordinator-halts.md).
"""

from __future__ import annotations

from tidegauge.groups import DescribeGroup, ListGroups, OffsetFetch
from tidegauge.transactions import AddPartitionsToTxn, DescribeTransaction, ListTransactions

_READS = (DescribeGroup, DescribeTransaction, ListGroups, ListTransactions, OffsetFetch)


def only_reads(request: object) -> bool:
    """Return whether a request changes nothing, whatever becomes of it; False for what is no request."""
    return isinstance(request, _READS) or (isinstance(request, AddPartitionsToTxn) and request.verify_only)
