"""The faults on requests of a cluster, as its directory notes them: what each control server and each broker reads.

Rules:
    1. The file is the truth about which faults were asked for; it outlives the control server, and several of them
       share it. Whether a rule is in force at a broker, only the broker knows.
    2. ``rules.json`` is the part of it that a broker has from its start (``lab.rules.file``): the sticky rules.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegauge.files import replace_text
from tidegauge_lab.local import layout


@dataclass(frozen=True, slots=True)
class NotedRule:
    """One rule; ``pids`` are those of the brokers that had it first."""

    rule_id: str
    value: Mapping[str, Any]
    tally_file: Path
    pids: Mapping[int, int | None]

    def belongs_at(self, broker_id: int, pid: int | None) -> bool:
        """Return whether a broker's process is to have it: another incarnation has only sticky rules."""
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
    """Return what is noted."""
    try:
        value = json.loads((directory_of(cluster) / layout.FAULTS_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return NotedFaults()
    return NotedFaults({one["id"]: [_rule(rule) for rule in one["rules"]] for one in value["faults"]}, value["last_id"])


def _rule(value: Mapping[str, Any]) -> NotedRule:
    pids = {int(broker_id): pid for broker_id, pid in value["pids"].items()}
    return NotedRule(value["id"], value["rule"], Path(value["tally"]), pids)


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
    """Note that there are none. Brokers that run are not notified."""
    noted = load(cluster)
    if noted.faults:
        save(cluster, NotedFaults(last_id=noted.last_id))
    shutil.rmtree(directory_of(cluster) / layout.TALLIES, ignore_errors=True)
