"""The steps of scenario files about share groups (KIP-932).

A member is a connection of the scenario's own to the leader of one partition (``ShareMember``): it fetches and
acknowledges when its step says so, and never by itself, so that a member between two steps is one that processes. Its
id is its name.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegauge.errors import ErrorCode
from tidegauge.lazy_dataclasses import dataclass
from tidegauge_client.share_member import Says
from tidegauge_lab.scenario import readers
from tidegauge_lab.scenario.readers import NO_LEADER
from tidegauge_lab.scenario.share_ranges import Range, ranges
from tidegauge_lab.scenario.step_base import PartitionStep, Step, argument
from tidegauge_lab.scenario.wording import failing

TYPES = tuple(one.name.lower() for one in Says if one is not Says.GAP)
_LATER = "later: go on without the response; wait_acknowledge looks"
_SAYS = {"accept": "accepts", "release": "releases", "reject": "rejects", "renew": "renews its lock on"}
_ERROR = "the error that is expected"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetGroupConfig(Step):
    """Settings of a group."""

    verb = "set_group_config"
    main = ""
    about = "set settings of a group, such as share.record.lock.duration.ms; it need not exist"

    group: str = argument(readers.text, "the group")
    config: Mapping[str, str] = argument(readers.by_name(readers.setting), "its settings")

    def sentence(self) -> str:
        """Return the step in words."""
        settings = " and ".join(f"{name} to {value}" for name, value in self.config.items())
        return f"For group {self.group}, set {settings}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginShareGroup(PartitionStep):
    """The start offset of a group without members."""

    verb = "begin_share_group"
    main = ""
    about = "let a share group without members begin a partition at an offset, as kafka-share-groups --reset-offsets"

    group: str = argument(readers.text, "the group, which need not exist")
    offset: int = argument(readers.integer, "the first offset that it is given")
    error: ErrorCode = argument(readers.error_name, _ERROR, default=ErrorCode.NONE)

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Share group {self.group} shall begin at offset {self.offset}{failing(self.error)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartMember(PartitionStep):
    """A member of a share group."""

    verb = "start_member"
    main = ""
    about = "let a member join a share group, and send heartbeats until the partition is assigned to it"

    member: str = argument(readers.text, "its name")
    group: str = argument(readers.text, "the share group")

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Member {self.member} joins share group {self.group}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStep(Step):
    """A step of one member."""

    member: str = argument(readers.text, "its name")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareFetch(MemberStep):
    """Records that a member acquires."""

    verb = "share_fetch"
    main = ""
    about = (
        "fetch until the member has acquired exactly these values, in this order; of none: fetch once, and get nothing"
    )

    values: tuple[str, ...] = argument(readers.many(readers.text), "the values; [] for none")
    delivery: int | None = argument(
        readers.positive, "how often each of them was delivered with this time", default=None
    )
    error: ErrorCode = argument(readers.error_name, _ERROR, default=ErrorCode.NONE)

    def sentence(self) -> str:
        """Return the step in words."""
        if self.error is not ErrorCode.NONE:
            return f"Member {self.member} fetches{failing(self.error)}"
        if not self.values:
            return f"Member {self.member} fetches and gets nothing"
        times = "" if self.delivery is None else f", which is delivery {self.delivery}"
        return f"Member {self.member} fetches and gets {', '.join(self.values)}{times}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledge(MemberStep):
    """An acknowledgement of records."""

    verb = "acknowledge"
    main = ""
    about = "say what becomes of records that the member has acquired: accept (default), release, reject or renew"

    values: tuple[str, ...] = argument(readers.one_or_many(readers.text), "their values, which it got last")
    type: str = argument(readers.choice(*TYPES), "what it says of them", default="accept")
    answer: str = argument(readers.choice("now", "later"), _LATER, default="now")
    error: ErrorCode = argument(readers.error_name, _ERROR, default=ErrorCode.NONE)

    def sentence(self) -> str:
        """Return the step in words."""
        outcome = "; the response is awaited later" if self.answer == "later" else failing(self.error)
        return f"Member {self.member} {_SAYS[self.type]} {', '.join(self.values)}{outcome}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitAcknowledge(MemberStep):
    """The outcome of an acknowledgement."""

    verb = "wait_acknowledge"
    main = "member"
    about = "wait for the response to the member's acknowledgement that was to be awaited later"

    error: ErrorCode = argument(readers.error_name, _ERROR, default=ErrorCode.NONE)

    def sentence(self) -> str:
        """Return the step in words."""
        end = failing(self.error) or " without an error"
        return f"Wait until the acknowledgement of member {self.member} ends{end}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveShareGroup(MemberStep):
    """An end in order."""

    verb = "leave_share_group"
    main = "member"
    about = "let the member end its session and leave: what it has acquired is given back"

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Member {self.member} ends its session and leaves"


@dataclass(frozen=True, slots=True, kw_only=True)
class KillMember(MemberStep):
    """An end at once."""

    verb = "kill_member"
    main = "member"
    about = "close the member's connection, as the death of its process would: what it has acquired is given back"

    def sentence(self) -> str:
        """Return the step in words."""
        return f"Member {self.member} dies: its connection closes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareState(PartitionStep):
    """Base of those that look at a share partition."""

    main = ""

    group: str = argument(readers.text, "the share group")
    broker: int | None = argument(
        readers.integer, "the broker that has it in flight; default: the leader", default=None
    )
    start: int | None = argument(readers.integer, "its start offset at the leader", default=None)
    end: int | None = argument(readers.integer, "the first offset that was never acquired", default=None)
    records: tuple[Range, ...] | None = argument(
        ranges,
        "{OFFSET or FIRST-LAST: STATE, STATE xCOUNT or STATE xCOUNT by MEMBER}: these in flight, and no others; STATE "
        "is available, acquired, acknowledged, archived or unknown",
        default=None,
    )
    durable_start: int | None = argument(
        readers.leader, "the start offset that the share coordinator keeps; none: it has none yet", default=None
    )
    durable: tuple[Range, ...] | None = argument(
        ranges, "the records whose state the share coordinator keeps, written as for records", default=None
    )
    durable_leader_epoch: int | None = argument(
        readers.integer, "the leader epoch below which the share coordinator refuses writes", default=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitShare(ShareState):
    """Until a share partition is so."""

    verb = "wait_share"
    about = "wait until all of this is true of a share partition"

    def sentence(self) -> str:
        """Return the step in words."""
        parts = [f"begins at {self.start}"] if self.start is not None else []
        parts += [f"ends at {self.end}"] if self.end is not None else []
        if self.records is not None:
            parts.append(f"has {', '.join(map(str, self.records)) or 'nothing'} in flight")
        if self.durable_start is not None:
            parts.append(
                "no start on disk" if self.durable_start == NO_LEADER else f"the start {self.durable_start} on disk"
            )
        if self.durable is not None:
            parts.append(f"{', '.join(map(str, self.durable)) or 'no records'} on disk")
        if self.durable_leader_epoch is not None:
            parts.append(f"was read in leader epoch {self.durable_leader_epoch}")
        return f"Wait until share group {self.group} {', '.join(parts)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectShare(ShareState):
    """The expected state of a share partition now."""

    verb = "expect_share"
    about = "check the present state of a share partition"
    is_expectation = True


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyShares(Step):
    """The expected findings of the accountant in the members' histories."""

    verb = "verify_shares"
    main = "found"
    about = "let the accountant judge all that members of share groups were given and have said; it finds exactly this"

    found: Mapping[str, int] = argument(
        readers.by_name(readers.positive),
        "{finding: how often}, such as accepted-again; {} if no guarantee is broken",
    )

    def expectations(self) -> int:
        """Return one: what the accountant finds."""
        return 1

    def sentence(self) -> str:
        """Return the step in words."""
        found = ", ".join(f"{count} {name}" for name, count in self.found.items())
        return f"Judge all that members were given and have said: {found or 'no guarantee is broken'}"


SHARE_STEPS: tuple[type[Step], ...] = (
    SetGroupConfig,
    BeginShareGroup,
    StartMember,
    ShareFetch,
    Acknowledge,
    WaitAcknowledge,
    LeaveShareGroup,
    KillMember,
    WaitShare,
    ExpectShare,
    VerifyShares,
)
