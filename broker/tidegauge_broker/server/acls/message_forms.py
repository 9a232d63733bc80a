"""Entries and filters of access control lists out of Kafka's messages, which name fields alike in all releases. Pure.

A number that is not known here becomes ``UNKNOWN``. Source: ``AclBinding``, ``AclBindingFilter``.
"""

from __future__ import annotations

from typing import Any

from tidegauge.cluster_metadata.access_lists import (
    Binding,
    Entry,
    Filter,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    by_number,
)


def filter_of(one: Any) -> Filter:
    """Return a filter of DescribeAcls or DeleteAcls."""
    return Filter(
        by_number(ResourceType, one.resource_type_filter),
        one.resource_name_filter,
        by_number(PatternType, one.pattern_type_filter),
        one.principal_filter,
        one.host_filter,
        by_number(Operation, one.operation),
        by_number(Permission, one.permission_type),
    )


def binding_of(one: Any, pattern_type: int) -> Binding:
    """Return an entry of CreateAcls, or a match of DeleteAcls.

    Their fields for the pattern's type have different names.
    """
    return Binding(
        Pattern(by_number(ResourceType, one.resource_type), one.resource_name, by_number(PatternType, pattern_type)),
        Entry(one.principal, one.host, by_number(Operation, one.operation), by_number(Permission, one.permission_type)),
    )
