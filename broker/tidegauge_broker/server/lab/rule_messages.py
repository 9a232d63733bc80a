"""Rules and the journal as messages of the Lab service; the rules that a broker has from its start."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.rules import read_rule
from tidegauge.files import read_json
from tidegauge.settings import Values
from tidegauge.v1 import lab_pb2
from tidegauge_broker.server.lab import tally
from tidegauge_broker.server.lab.rules import Arrived, SetRule


def from_rule(message: lab_pb2.RequestRule) -> SetRule:
    """Return the rule in a message.

    Raises:
        TidegaugeError: INVALID_REQUEST, it is none, or the file that it names cannot hold its numbers.
    """
    try:
        rule = read_rule(json.loads(message.rule_json))
    except (ValueError, TypeError) as problem:
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"{message.rule_json!r} is no rule: {problem}") from None
    counts = Path(message.tally_file) if message.tally_file else None
    if counts is not None:
        tally.require(counts)
    return SetRule(message.rule_id, rule, counts, message.rule_json)


def rules_from_start(settings: Values) -> list[SetRule]:
    """Return the rules in the file of ``lab.rules.file``; none without a file.

    Raises:
        TidegaugeError: INVALID_CONFIG, the file is damaged.
    """
    path = settings["lab.rules.file"]
    if path is None:
        return []
    try:
        return [_rule_from_start(Path(path).parent, one) for one in read_json(Path(path))]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError, KeyError, OSError, TidegaugeError) as problem:
        raise TidegaugeError(ErrorCode.INVALID_CONFIG, f"{path} holds no rules: {problem}") from None


def _rule_from_start(directory: Path, entry: Mapping[str, Any]) -> SetRule:
    """Return a rule of the file in this directory.

    Raises:
        ValueError: its numbers would be written to a file that is not below this directory.
    """
    path = Path(entry["tally"])
    if not path.resolve().is_relative_to(directory.resolve()):
        raise ValueError(f"a rule counts in {path}, which is not below {directory}")
    return SetRule(str(entry["id"]), read_rule(entry["rule"]), path, json.dumps(entry["rule"]))


def to_request(entry: Arrived) -> lab_pb2.ArrivedRequest:
    """Return an entry of the journal as a message."""
    request = entry.request
    return lab_pb2.ArrivedRequest(
        number=entry.number,
        time_ms=entry.time_ms,
        api=request.api,
        client_id=request.client_id,
        partitions=[lab_pb2.LabPartition(topic=at.topic, partition=at.partition) for at in request.partitions],
        group=request.group,
        transactional_id=request.transactional_id,
        rules=entry.rules,
        done=entry.done,
    )
