"""The entries of access control lists that a filter matches, for DescribeAcls at brokers and controllers."""

from __future__ import annotations

from collections.abc import AsyncIterator

from tidegauge.cluster_metadata.access_lists import Entry, Filter, Pattern
from tidegauge.with_turns import with_turns
from tidegauge_broker.security.acls.authorizer import AclAuthorizer

_PATTERNS_PER_TURN = 500


async def matching_lists(authorizer: AclAuthorizer, wanted: Filter) -> AsyncIterator[tuple[Pattern, list[Entry]]]:
    """Yield each pattern with its entries that a filter matches, if there are any.

    The lists are of one moment; the event loop has turns between.
    """
    async for pattern, entries in with_turns(authorizer.lists(), _PATTERNS_PER_TURN):
        if wanted.matches_pattern(pattern) and (found := [one for one in entries if wanted.matches_entry(one)]):
            yield pattern, found
