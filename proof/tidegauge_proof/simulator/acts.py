"""The event of one step of a simulated history, as a value: its kind and its objects.

Everything that is said about a step is derived from its act: the sentence for people (``words_of``) and the steps of a
scenario file (``schedule_scenario``). ``None`` stands for a step that found nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FAULTS_END = "faults_end"
"""The kind of the last act of a history, after which everything is delivered and must come to rest."""


@dataclass(slots=True)
class Act:
    """One act.

    Attributes:
        kind: a key of ``WORDS``.
        fields: what the kind says of itself; brokers by id, offsets, epochs and so on.
    """

    kind: str
    fields: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        """Return a field by its name."""
        return self.fields[name]


def act(kind: str, **fields: Any) -> Act:
    """Return an act of this kind."""
    return Act(kind, fields)


UNDESCRIBED = Act("undescribed", {})
"""Stands for what a step did in a history whose steps no reader wants to have described."""


def words_of(done: Act | None) -> str:
    """Return the sentence for people; empty if nothing was done."""
    if done is None:
        return ""
    words = WORDS[done.kind]
    return words.format(**done.fields) if isinstance(words, str) else words(done)


def _ids(brokers: Any) -> str:
    return ",".join(map(str, brokers))


def _produce(done: Act) -> str:
    acks = "all" if done["acks"] < 0 else done["acks"]
    return f"produce {done['count']} with acks={acks}{_to(done['partitions'])} at {done['broker']}"


def _to(partitions: Sequence[int]) -> str:
    """Return the partitions in words; empty for the first one."""
    return "" if list(partitions) == [0] else f" to partition {_ids(partitions)}"


def _idempotent(done: Act) -> str:
    to = _to(done["partitions"])
    return f"idempotent produce of sequence {done['sequence']}{' again' * done['again']}{to} at {done['broker']}"


def _ask(done: Act) -> str:
    return f"{done['broker']} asks {', '.join(map(str, done['leaders']))}"


def _deliver(done: Act) -> str:
    return f"{' and '.join(done['messages'])} of controller epoch {done['controller_epoch']} arrive at {done['broker']}"


def _decide(done: Act) -> str:
    states = "; ".join(
        f"leader {leader} epoch {leader_epoch} ISR {_ids(isr)}" for leader, leader_epoch, isr in done["states"]
    )
    return f"controller {done['broker']} decides; {states}"


def _power(done: Act) -> str:
    torn = " and a part of the next batch" * bool(done["torn"])
    return f"power loss at {done['broker']}, which keeps {_ids(done['keep'])} of {_ids(done['end'])}{torn}"


def _propose(done: Act) -> str:
    return f"{done['broker']} proposes ISR {_ids(done['isr'])}" + _to([done["partition"]]).replace(" to ", " for ")


def _cut_links(done: Act) -> str:
    return f"links partitioned: {', '.join(f'{one}>{other}' for one, other in done['links'])}"


WORDS: dict[str, str | Callable[[Act], str]] = {
    "produce": _produce,
    "produce_idempotently": _idempotent,
    "consume": lambda done: f"consume from {_ids(done['offsets'])} at {done['broker']}",
    "whole_round": "round of {broker}",
    "ask": _ask,
    "lose_request": "request of {broker} to {leader} is lost",
    "arrive": "request of {broker} arrives at {leader}",
    "lose_answer": "response of {leader} to {broker} is lost",
    "answer": "response of {leader} arrives at {broker}",
    "give_up_proposal": "{broker} gives up its ISR proposal, and will send it again",
    "give_up": "{broker} gives up its round with {leader}",
    "deliver": _deliver,
    "deliver_stray": "a late {message} arrives at {broker}",
    "decide": _decide,
    "propose": _propose,
    "tell": "verdict {error} for {broker}",
    "pass_time": "{ms} ms pass",
    "write_checkpoint": "{broker} writes its high watermark",
    "flush": "{broker} flushes its log",
    "kill": "kill {broker}",
    "cut_power": _power,
    "expire": "session of {broker} ends",
    "register": "{broker} registers again",
    "start": "start {broker}",
    "pause": "pause {broker}",
    "resume": "resume {broker}",
    "cut_links": _cut_links,
    "heal_links": "links healed",
    "elect": "{broker} becomes the controller",
    "rebalance": "controller {broker} looks for preferred leaders",
    "leave": "{broker} asks to shut down",
    "stop": "controlled shutdown of {broker} ends",
    "fail_directory": "log directory {directory} of {broker} fails after {writes_left} more writes",
    "damage_batch": "the batch at offset {offset} of partition {partition} at {broker} becomes unreadable",
    "raise_defect": "a defect strikes partition {partition} at {broker} after {writes_left} more writes",
    "mend": "the disks of {broker} are mended",
    FAULTS_END: "the faults end",
    UNDESCRIBED.kind: "undescribed",
}
"""How each kind of act is said: a template of its fields, or a function where a template can't say it."""
