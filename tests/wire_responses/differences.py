"""Differences of Tidegauge's responses from Apache Kafka 3.9.1's, each with its reason, and the comparison."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.wire_responses.absent_settings import ABSENT, OUR_OWN
from tests.wire_responses.probe import Facts

RECORDING = Path(__file__).with_name("kafka-3.9.1.json")


class Known(NamedTuple):
    """A difference that stays.

    Attributes:
        facts: a regular expression that a fact's whole name matches.
        why: the reason.
        theirs: what Kafka's response matches as a whole; "" for a fact that is not there.
        ours: what ours matches as a whole; "" for a fact that is not there.
    """

    facts: str
    why: str
    theirs: str = r"[\s\S]*"
    ours: str = r"[\s\S]*"


LEGAL_VALUES = re.compile(r"; it must be .*?(?=\)\]$|, -1, -1, False\)\]$)")
"""Our refusals of a setting's value end with the legal values, where Kafka's end before."""
LISTS = re.compile(r"(?:ArrayBuffer|HashSet|Set|List)\(([^()]*)\)")
"""Kafka's sentences show Scala's collections; ours show lists."""
ANYTHING = r"[\s\S]*"


def _settings(names: Iterable[str]) -> str:
    """Return the expression for the facts about broker settings of these names."""
    return f"broker setting ({'|'.join(map(re.escape, names))})"


KNOWN: tuple[Known, ...] = (
    Known(
        "ApiVersions others",
        "Envelope (58) is for KRaft; ConsumerGroupHeartbeat and ConsumerGroupDescribe (68, 69) are advertised by Kafka "
        "only to be refused with UNSUPPORTED_VERSION",
        r"\[58, 68, 69\]",
        r"\[\]",
    ),
    Known("frame: a string that is no UTF-8", "Kafka puts replacement characters; here such a request is malformed"),
    Known(
        r"formats: .* read by v\d+",
        "records are never null: clients take that for a malformed response (KAFKA-18646)",
        r"\((35|76), -1, None\)",
        r"\((35|76), -1, \(0, \[\]\)\)",
    ),
    Known(
        "formats: refused (unknown codec|no (gzip|snappy|lz4))",
        "Kafka fails with an unexpected error where records can't be decompressed",
        r"\[\(-1, -1, -1\)\]",
        r"\[\((2|87), -1, -1\)\]",
    ),
    Known("formats: refused a batch and a message", "a message behind a batch is no batch", ours=r"\[\(2, .*"),
    Known("Produce null records.*", "Kafka never responds; a client must not wait for ever", "no response"),
    Known("Produce magic 3|formats: refused magic 3 in v3", "any other magic is refused alike", ours=r".*87.*"),
    Known(
        "CreateTopics assignment no replicas",
        "Kafka takes a topic without replicas, which nothing can be done with",
        ours=r".*39.*",
    ),
    Known("CreateTopics assignment a broker twice", "Kafka's sentence shows a Scala map", ours=r".*39.*"),
    Known("DeleteTopics without name and id", "an id of zeros is unknown, not forbidden", ours=r".*100.*"),
    Known("AlterConfigs a resource twice", "Kafka never responds; a client must not wait for ever", "no response"),
    Known("ElectLeaders of an unknown kind", "Kafka fails with an unexpected error", ".*-1.*", ".*42.*"),
    Known("IncrementalAlterConfigs unknown operation", "Kafka fails with an unexpected error", ".*-1.*", ".*42.*"),
    Known(
        r"Fetch (max_bytes|partition_max_bytes)=-1",
        "a limit below 0 is 0; Kafka fails with an unexpected error",
        r".*-1, \(-1, -1, -1\).*",
    ),
    Known(
        "ListOffsets v9 at isolation level 9",
        "a level that is unknown reads all; Kafka fails with an unexpected error",
        ".*error_code=-1.*",
        ".*error_code=0.*",
    ),
    Known(
        r"epochs: ListOffsets v\d+ time T\+0 after a deletion of records",
        "Kafka looks for a time in the first segment that has a record of it, also where that lies below the log start",
        theirs=r".*\{error_code=0\}.*",
        ours=r".*offset=3.*",
    ),
    Known("CreateTopics a partition assigned twice", "Kafka takes the last of several assignments", ours=r".*39.*"),
    Known(
        r"CreatePartitions of topic name '(\.\.)?'|IncrementalAlterConfigs no settings of 2/'\.\.'",
        "a name that no topic can have is that of no topic; Kafka gives an error of its path in ZooKeeper",
        ours=".*does not exist.*",
    ),
    Known(
        r"AlterUserScramCredentials of \.{1,2}",
        "each user is altered for itself; Kafka fails them all",
        r".*-1.*-1.*",
        r".*-1.*'?beside.*0.*",
    ),
    Known(
        "OffsetFetch edge: of no groups|AddPartitionsToTxn v4 of nothing",
        "Kafka never responds; a client must not wait for ever",
        "no response",
        r"\{error_code=0\}",
    ),
    Known(
        "Produce a (partition|topic) twice.*",
        "Kafka appends the last batch, drops the others without a word, and acknowledges; nothing is appended here",
        theirs=r".*\(0, 0, True\).*|2|open",
        ours=r".*\(0, 42, False\).*|0|closed",
    ),
    Known(
        "IncrementalAlterConfigs (append|subtract) of nope at topic .*",
        "Kafka fails with an unexpected error where a setting is unknown",
        r"\[\(-1, None\)\]",
        r"\[\(40, .* is not allowed for config key: nope\)\]",
    ),
    Known("ControlledShutdown of an unknown broker", "Kafka fails with an unexpected error", ".*-1.*", ".*8.*"),
    Known(
        "AllocateProducerIds of an unknown broker",
        "a broker that is not registered has an epoch of the past, as one that has registered again",
        ".*102.*",
        ".*77.*",
    ),
    Known("topic setting min.cleanable.dirty.ratio=NaN", "NaN is no ratio", ours=".*40.*"),
    Known(
        r"broker setting (ssl\..*|sasl\.(jaas\.config|mechanism\..*)|max\.connections.*)"
        "|IncrementalAlterConfigs per-broker setting.*",
        "TLS settings are PEM, and they, JAAS entries, the mechanism among brokers and limits on "
        "connections change at a restart only",
        ours="[^-]+.*",
    ),
    Known(
        "broker setting security.inter.broker.protocol",
        "shown only where it is given: the listener's name decides",
        ours=r"\(None.*",
    ),
    Known(
        r"broker setting (inter\.broker|control\.plane)\.listener\.name",
        "given to the brokers of a local cluster: followers speak Kafka's protocol, the controller gRPC",
        ours=r"\((PLAINTEXT|GRPC), 4, .*",
    ),
    Known(
        r"broker setting group\.share\.partition\.max\.record\.locks",
        "share groups are those of Kafka 4.3, which has another default",
        ours=r"\(2000, .*",
    ),
    Known(
        r"broker setting group\.share\.max\.size",
        "share groups are those of Kafka 4.3, which has another type",
        ours=r"\(200, 5, 3, .*",
    ),
    Known(
        "DescribeConfigs (unknown kind|kind 0|a group)",
        "the sentence names the kind that is not known",
        ours=".*Unexpected resource type.*",
    ),
    Known(
        "FindCoordinator of (an unknown kind|a share group)",
        "the sentence names the kind that is not known",
        ours=".*42.*",
    ),
    *(
        Known(_settings(names.split()), f"settings that are absent: {why} (docs/not-emulated.md)", ours="")
        for why, names in ABSENT.items()
    ),
    Known(_settings(OUR_OWN), "a setting of our own (docs/configuration.md)", theirs=""),
)


@dataclass
class Verdict:
    """The result of a comparison.

    Attributes:
        compared: number of facts.
        differences: those without a reason, as text.
        known: how many differences each reason covers.
        idle: reasons that no difference needs any more.
    """

    compared: int
    differences: list[str] = field(default_factory=list)
    known: Counter[str] = field(default_factory=Counter)
    idle: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Return the verdict as lines."""
        lines = [*self.differences, ""]
        lines += [f"{count} responses differ: {why}" for why, count in sorted(self.known.items())]
        lines += [f"no response differs any more: {why}" for why in self.idle]
        lines.append(f"{self.compared} responses compared, {len(self.differences)} differences without a reason")
        return "\n".join(lines)


def compare(theirs: Mapping[str, str], ours: Mapping[str, str]) -> Verdict:
    """Compare Kafka's responses with ours."""
    every = [*theirs, *(name for name in ours if name not in theirs)]
    verdict = Verdict(len(every))
    for name in every:
        one, other = theirs.get(name), ours.get(name)
        if _same(one) == _same(other):
            continue
        rule = next((rule for rule in KNOWN if _fits(rule, name, one or "", other or "")), None)
        if rule is None:
            verdict.differences.append(f"{name}\n    Kafka:     {_shown(one)}\n    Tidegauge: {_shown(other)}")
        else:
            verdict.known[rule.why] += 1
    verdict.idle = [rule.why for rule in KNOWN if rule.why not in verdict.known]
    return verdict


def _same(response: str | None) -> str | None:
    """Return a response without the parts that differ on purpose in many."""
    if response is None:
        return None
    return LISTS.sub(r"[\1]", LEGAL_VALUES.sub("", response))


def _fits(rule: Known, name: str, theirs: str, ours: str) -> bool:
    pairs = ((rule.facts, name), (rule.theirs, theirs), (rule.ours, ours))
    return all(re.fullmatch(pattern, text) for pattern, text in pairs)


def _shown(response: str | None) -> str:
    return "not there" if response is None else response


def recorded() -> Facts:
    """Return what Apache Kafka 3.9.1 responded when it was recorded."""
    facts: Facts = json.loads(RECORDING.read_text(encoding="utf-8"))
    return facts


def record(facts: Facts) -> None:
    """Keep Kafka's responses."""
    RECORDING.write_text(json.dumps(facts, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
