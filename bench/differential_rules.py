"""Permitted differences between the two sides of the differential run, each with its reason; the comparison.

``SAME_IN_MEANING`` rewrites values on both sides before they are compared (ids, ports, times). ``KNOWN`` are
differences that stay. A rule that nothing needed is reported, so that the list doesn't outlive its reasons.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from differential_look import Facts


class Rewrite(NamedTuple):
    """In facts whose name fits, what fits in the value becomes the same on both sides."""

    name: str
    value: str
    by: str
    why: str


class Known(NamedTuple):
    """A difference that stays: facts whose name fits, and what they say on either side.

    None means that the fact is not there, ``ANYTHING`` that it may say anything, or not be there.
    """

    name: str
    theirs: str | None
    ours: str | None
    why: str


class Order(NamedTuple):
    """In facts whose name fits, pieces of the value come in an order that means nothing."""

    name: str
    pieces: Callable[[str], str]
    why: str


def _topics_sorted(text: str) -> str:
    """Return the topics of a description by name, and the settings of each."""
    blocks = re.split(r"\n(?=\t?Topic: )", text)
    lines = [re.sub(r"(?<=Configs: )[^\t]+$", _commas_sorted, block.strip("\t")) for block in blocks]
    return "\n".join(sorted(lines, key=lambda line: re.findall(r"Topic: (\S+)", line)))


def _commas_sorted(found: re.Match[str]) -> str:
    return ",".join(sorted(found[0].split(",")))


def _lines_sorted(text: str) -> str:
    return "\n".join(sorted(text.splitlines()))


def _keys_sorted(text: str) -> str:
    return json.dumps(json.loads(text), sort_keys=True) if text.startswith("{") else text


ORDER: tuple[Order, ...] = (
    Order("topics --describe.* stdout", _topics_sorted, "topics and their settings come in the order of a hash map"),
    Order("znode /config/[^ ]+ config", _keys_sorted, "the same"),
    Order("configs --describe.* stdout", _lines_sorted, "the same"),
)
NAMES: tuple[Rewrite, ...] = (
    Rewrite("", r"\.[0-9a-f]{32}-delete", ".ID-delete", "a directory to be deleted gets a random id"),
)
SAME_IN_MEANING: tuple[Rewrite, ...] = (
    Rewrite("", r"127\.0\.0\.1:\d+", "HOST:PORT", "each broker listens on a port that was free"),
    Rewrite("znode /brokers/ids/[^ ]+ port", r"\d+", "PORT", "the same"),
    Rewrite("znode /brokers/ids/[^ ]+ endpoints", r',"GRPC://HOST:PORT"', "", "brokers have a gRPC listener, too"),
    Rewrite("znode /brokers/ids/[^ ]+ listener_security_protocol_map", r',"GRPC":"PLAINTEXT"', "", "the same"),
    Rewrite(" (timestamp|.*since)$", r'"?\d{13}"?', "TIME", "the time of the run"),
    Rewrite("(topic_id|/cluster/id|meta.properties|partition.metadata)", r"[A-Za-z0-9_-]{22}", "ID", "ids are random"),
    Rewrite("/latest_producer_id_block", r"\d+", "ANY", "which brokers producers ask for their ids is chance"),
    Rewrite("dump .* line", r"(producerId: )\d+(.* crc: )\d+", r"\1ANY\2ANY", "the same; the CRC covers it"),
    Rewrite("dump .* line", r"(producerId: )\d+", r"\1ANY", "the same"),
    Rewrite("dump .*(pairs|risky)-0/.*log line", r"(equence: )-?\d+", r"\1ANY", "aiokafka numbers plain batches too"),
    Rewrite("dump .*(pairs|risky)-0/.*log line", r"( crc: )\d+", r"\1ANY", "the CRC covers those numbers"),
    Rewrite(
        "dump .* line|dump complaint",
        r"/[^ ]*/(kafka/data-|tidegauge/broker-)(\d)(/data)?/",
        r"broker-\2/",
        "where it lies",
    ),
    Rewrite("delete-records .* stdout", r"error: [^:]+: ", "error: ", "an error's name here, Java's class there"),
    Rewrite("znode /config/changes/.* entity_path", r"brokers/\d", "brokers/ANY", "the order of a hash map"),
    Rewrite("sentence", r"Optional\[(\w+)\]", r"\1", "3.9 prints the Java Optional, by mistake"),
    Rewrite("sentence", r"; [^;]+$", "", "behind Kafka's sentence ours say what to do"),
    Rewrite("stdout", r"(TopicId: )[A-Za-z0-9_-]{22}", r"\1ID", "ids are random"),
)
ANYTHING = "*"
KNOWN: tuple[Known, ...] = (
    Known(
        "command .* delete-records [^ ]+ delete.json$", "succeeded", "failed", "a refused partition: exit code 1 here"
    ),
    Known(
        "delete-records .* stdout",
        ".*error: The requested offset is not within the range.*",
        ".*error: Cannot increment the log start offset to .*",
        "Kafka's wire carries the error's number alone; ours tells the leader's reason",
    ),
    Known("delete-records .* sentence", None, ANYTHING, "a refused partition: exit code 1 here"),
    Known("get-offsets --topic orders --time -3", r".*orders:1:29.*", ANYTHING, "3.9 names a record that was deleted"),
    Known(r"/\.lock$", None, "file of 0 bytes", ".lock stays after a stop, unlocked"),
    Known(r"/\.synced-lengths$", None, ANYTHING, "the lab's note of what was flushed"),
    Known(
        "cleaner-offset-checkpoint", "0\n0|file of 4 bytes", "|file of 0 bytes", "written once there is something in it"
    ),
    Known(
        "^an_unclean_election: file broker-0/replication-offset-checkpoint",
        ANYTHING,
        ANYTHING,
        "the broker is killed just after a write: its checkpoint is up to half a second old",
    ),
    Known(
        r"name broker-\d/[a-z-]+-checkpoint\.tmp$",
        ANYTHING,
        ANYTHING,
        "a kill between the writing of a checkpoint and its renaming leaves the file, on either side",
    ),
    Known("replication-offset-checkpoint", "", "0\n0", "Kafka writes it from the first LeaderAndIsr on"),
    Known(
        r"^who_was_cut_returns: dump (.*index line 0|complaint)",
        ANYTHING,
        ANYTHING,
        "the indexes of active segments are preallocated in Kafka, and show zeros while they are",
    ),
)


@dataclass
class Verdict:
    """The result of the comparison."""

    compared: int
    differences: list[str]
    known: Counter[str] = field(default_factory=Counter)
    idle: list[str] = field(default_factory=list)

    def text(self) -> str:
        """For people."""
        lines = [*self.differences, ""]
        lines += [f"{count} differences that are known: {why}" for why, count in sorted(self.known.items())]
        lines += [f"nothing needed this rule any more: {rule}" for rule in self.idle]
        lines.append(f"{self.compared} facts compared, {len(self.differences)} differences")
        return "\n".join(lines)


def rewritten(facts: Facts, used: set[str]) -> Facts:
    """Return the facts with everything that may differ made equal."""
    found = {}
    for name, text in facts.items():
        plain, value = name, text
        for rule in NAMES:
            plain = re.sub(rule.value, rule.by, plain)
        for order in ORDER:
            if re.search(order.name, plain):
                value = order.pieces(value)
        for rule in SAME_IN_MEANING:
            if re.search(rule.name, plain):
                changed = re.sub(rule.value, rule.by, value)
                if changed != value:
                    used.add(rule.why)
                value = changed
        found[plain] = value
    return _lines_of_snapshots_sorted(found)


def _lines_of_snapshots_sorted(facts: Facts) -> Facts:
    """Sort the producers of snapshots, which come in the order of a hash map of their ids."""
    lines: dict[str, list[str]] = {}
    for name in facts:
        if found := re.fullmatch(r"(.*\.snapshot line )\d+", name):
            lines.setdefault(found[1], []).append(name)
    return facts | {
        name: text
        for names in lines.values()
        for name, text in zip(sorted(names), sorted(facts[name] for name in names), strict=True)
    }


def compare(theirs: Facts, ours: Facts) -> Verdict:
    """All facts of both sides."""
    used: set[str] = set()
    theirs, ours = rewritten(theirs, used), rewritten(ours, used)
    every = sorted(theirs.keys() | ours.keys())
    verdict = Verdict(len(every), [])
    for name in every:
        one, other = theirs.get(name), ours.get(name)
        if one == other:
            continue
        known = next((rule for rule in KNOWN if _is(rule, name, one, other)), None)
        if known is None:
            verdict.differences.append(f"{name}\n    Kafka:     {_shown(one)}\n    Tidegauge: {_shown(other)}")
        else:
            verdict.known[known.why] += 1
    rules = [(rule.why, used) for rule in SAME_IN_MEANING] + [(rule.why, set(verdict.known)) for rule in KNOWN]
    verdict.idle = sorted({why for why, seen in rules if why not in seen})
    return verdict


def _is(rule: Known, name: str, theirs: str | None, ours: str | None) -> bool:
    return bool(re.search(rule.name, name)) and _fits(rule.theirs, theirs) and _fits(rule.ours, ours)


def _fits(pattern: str | None, value: str | None) -> bool:
    if pattern == ANYTHING:
        return True
    if pattern is None or value is None:
        return pattern is value
    return re.fullmatch(pattern, value, re.DOTALL) is not None


def _shown(value: str | None) -> str:
    return "not there" if value is None else value.replace("\n", "\n               ")
