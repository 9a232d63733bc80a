"""The requests that only read: nothing can have changed if the decision about one of them fails.

Every other decision changes its group or transactional id in place, so that a failure in the midst takes that one out
of service (docs/adr/0023-a-defect-costs-its-group.md).
"""

from __future__ import annotations

from tidegauge.consumer_groups import DescribeConsumerGroup
from tidegauge.groups import DescribeGroup, ListGroups, OffsetFetch
from tidegauge.share_groups import DescribeShareGroup, ListSharePartitions
from tidegauge.transactions import AddPartitionsToTxn, DescribeTransaction, ListTransactions

_READS = (
    DescribeConsumerGroup,
    DescribeGroup,
    DescribeShareGroup,
    DescribeTransaction,
    ListGroups,
    ListSharePartitions,
    ListTransactions,
    OffsetFetch,
)


def only_reads(request: object) -> bool:
    """Whether a request changes nothing; False for other objects."""
    return isinstance(request, _READS) or (isinstance(request, AddPartitionsToTxn) and request.verify_only)
