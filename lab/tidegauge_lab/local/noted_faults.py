"""The faults on requests of a cluster, as its directory notes them: what each control server and each broker reads.

Rules:
    1. The file is the truth about which faults were asked for; it outlives the control server, and several of them
       share it. Whether a rule is in force at a broker, only the broker knows.
    2. ``rules.json`` is the part of it that a broker has from its start (``lab.rules.file``): the sticky rules.
    3. The file is input of a stranger. Numbers of a rule are counted in, and deleted with, a file of ``tallies/`` that
       the rule's id names; a note that names another file is refused.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from tidegauge.cluster_directory import command_for
from tidegauge.errors import TidegaugeError
from tidegauge.faults.rules import read_rule
from tidegauge.files import replace_text
from tidegauge.lazy_dataclasses import dataclass
from tidegauge_lab.local import layout
from tidegauge_lab.local.notes import fields_of, list_of, number_of, read_note, text_of


@dataclass(frozen=True, slots=True)
class NotedRule:
    """One rule; ``pids`` belong to the brokers that had it first."""

    rule_id: str
    value: Mapping[str, Any]
    tally_file: Path
    pids: Mapping[int, int | None]

    def belongs_at(self, broker_id: int, pid: int | None) -> bool:
        """Return whether a broker's process gets the rule: another incarnation only sticky ones."""
        return bool(self.value.get("sticky")) or self.pids.get(broker_id) == pid


@dataclass(slots=True)
class NotedFaults:
    """All faults by their id, and the last id that was given."""

    faults: dict[int, list[NotedRule]] = field(default_factory=dict)
    last_id: int = 0


def directory_of(cluster: Path) -> Path:
    """Return where a cluster's faults are noted."""
    return layout.control_process(cluster).directory


def load(cluster: Path) -> NotedFaults:
    """Return the noted faults.

    Raises:
        TidegaugeError: INVALID_REQUEST, the note is damaged (rule 3).
    """
    path = directory_of(cluster) / layout.FAULTS_FILE
    what_to_do = f"{command_for(cluster, 'down')} forgets all faults on requests"
    return read_note(path, lambda value: _faults_of(cluster, value), what_to_do) or NotedFaults()


def tally_of(cluster: Path, rule_id: str) -> Path:
    """Return the file that counts a rule's requests; the id is ``FAULT.PLACE``."""
    return directory_of(cluster) / layout.TALLIES / rule_id.replace(".", "-")


def _faults_of(cluster: Path, value: Any) -> NotedFaults:
    last_id, faults = fields_of(value, "last_id", "faults")
    found: dict[int, list[NotedRule]] = {}
    for one in list_of(faults, lambda fault: fields_of(fault, "id", "rules")):
        fault_id = number_of(one[0])
        found[fault_id] = list_of(one[1], lambda rule: _rule(cluster, rule))
        if [rule.rule_id for rule in found[fault_id]] != [
            f"{fault_id}.{place}" for place in range(len(found[fault_id]))
        ]:
            raise ValueError(f"the rules of fault {fault_id} have the ids of others")
    return NotedFaults(found, number_of(last_id))


def _rule(cluster: Path, value: Any) -> NotedRule:
    rule_id, rule, tally, pids = fields_of(value, "id", "rule", "tally", "pids")
    path = tally_of(cluster, text_of(rule_id))
    if text_of(tally) != str(path):
        raise ValueError(f"rule {rule_id[:40]} is counted in {tally[:100]}, and not in {path}")
    if not isinstance(pids, dict) or not isinstance(rule, dict):
        raise ValueError(f"rule {rule_id[:40]} has no object for its pids or words")  # noqa: TRY004 - one kind of error
    try:
        read_rule(rule)
    except TidegaugeError as problem:
        raise ValueError(problem.message) from None
    numbers = {_id_of(text): None if pid is None else number_of(pid) for text, pid in pids.items()}
    return NotedRule(rule_id, rule, path, numbers)


def _id_of(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 11):
        raise ValueError(f"{text[:40]!r} is no broker's id")
    return int(text)


def save(cluster: Path, noted: NotedFaults) -> None:
    """Note these faults, and no others."""
    faults = [{"id": one, "rules": [_as_json(rule) for rule in rules]} for one, rules in noted.faults.items()]
    sticky = [_as_json(rule) for rules in noted.faults.values() for rule in rules if rule.value.get("sticky")]
    directory = directory_of(cluster)
    directory.mkdir(parents=True, exist_ok=True)
    _write(directory / layout.FAULTS_FILE, {"last_id": noted.last_id, "faults": faults})
    _write(directory / layout.RULES_FILE, sticky)


def _as_json(rule: NotedRule) -> dict[str, Any]:
    pids = {str(broker_id): pid for broker_id, pid in rule.pids.items()}
    return {"id": rule.rule_id, "rule": dict(rule.value), "tally": str(rule.tally_file), "pids": pids}


def _write(path: Path, value: Any) -> None:
    replace_text(path, json.dumps(value))


def forget(cluster: Path) -> None:
    """Note that there are none, also in place of a damaged note. Brokers that run are not notified."""
    try:
        noted = load(cluster)
    except TidegaugeError:
        noted = NotedFaults({0: []})
    if noted.faults:
        save(cluster, NotedFaults(last_id=noted.last_id))
    shutil.rmtree(directory_of(cluster) / layout.TALLIES, ignore_errors=True)
