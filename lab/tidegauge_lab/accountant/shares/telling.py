"""Says what a history of share groups tells, and which guarantee it breaks: lines for people, and one document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from tidegauge.counted import counted
from tidegauge_lab.accountant.findings import found_document, found_lines
from tidegauge_lab.accountant.shares.findings import MEANINGS, NOTES
from tidegauge_lab.accountant.shares.judging import GroupAccount, ShareJudgement
from tidegauge_lab.accountant.shares.model import Says


def share_lines(judgement: ShareJudgement) -> Iterator[str]:
    """Return a judgement as lines of text."""
    yield f"History of {counted(judgement.operations, 'operation')} of share groups"
    for name, account in sorted(judgement.groups.items()):
        yield from _group_lines(name, account)
    for process, member in sorted(judgement.members.items()):
        yield (
            f"    {process}: given {member.given}, accepted {member.accepted}, released {member.released}, "
            f"rejected {member.rejected}"
        )
    yield from found_lines(judgement.found, MEANINGS, NOTES, judgement.not_checked, is_clean=judgement.is_clean)


def _group_lines(name: str, account: GroupAccount) -> Iterator[str]:
    accepted, rejected = account.ended[Says.ACCEPT], account.ended[Says.REJECT]
    left = account.records - accepted - rejected
    yield (
        f"Group {name}: {counted(account.records, 'record')} given {account.deliveries} times; "
        f"{accepted} accepted, {rejected} rejected, {left} neither"
    )
    again = account.after_release + account.after_silence
    if again:
        yield (
            f"    {again} given again: {account.after_release} after a release, {account.after_silence} because a lock "
            "ended, a connection closed or a leader died"
        )


def to_json(judgement: ShareJudgement) -> dict[str, Any]:
    """Return a judgement as a document; all keys always."""
    return {
        "clean": judgement.is_clean,
        "operations": judgement.operations,
        "groups": {
            name: {
                "records": one.records,
                "deliveries": one.deliveries,
                "times": {str(times): count for times, count in sorted(one.times.items())},
                "after_release": one.after_release,
                "after_silence": one.after_silence,
                "accepted": one.ended[Says.ACCEPT],
                "rejected": one.ended[Says.REJECT],
            }
            for name, one in sorted(judgement.groups.items())
        },
        "members": {process: asdict(one) for process, one in sorted(judgement.members.items())},
        **found_document(judgement.found, MEANINGS, NOTES),
        "not_checked": judgement.not_checked,
    }
