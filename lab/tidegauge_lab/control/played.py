"""Steps of scenario files, played on the running cluster: the same words, the same player.

Rules:
    1. A list of steps stands for itself: what it marks, and responses that it waits for later, end with it.
    2. ``partition`` may be left out only while the cluster has one topic, or gets it by an earlier step.
    3. ``verify`` compares with what this list produced; records that others wrote are not held against it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidegauge.partition import INTERNAL_TOPICS, TopicPartition
from tidegauge_client.cluster_file import ClusterFile
from tidegauge_lab.control.problems import RefusedError, malformed
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.waiting import TimeLimitError
from tidegauge_lab.scenario import broker_steps, step_base
from tidegauge_lab.scenario.cluster_connections import ClusterConnections
from tidegauge_lab.scenario.loader import ScenarioError, check_context, parse_steps
from tidegauge_lab.scenario.model import Scenario, Topic
from tidegauge_lab.scenario.outcome import Outcome
from tidegauge_lab.scenario.player import Player
from tidegauge_lab.scenario.yaml_reader import node_of

SOURCE = "steps"
HISTORIES = "control"


def read_steps(
    values: Sequence[Mapping[str, Any]],
    assignments: Mapping[str, Sequence[Sequence[int]]],
    cluster: ClusterFile,
    limit: float,
) -> Scenario:
    """Read steps for a cluster.

    Args:
        values: as in a scenario file.
        assignments: the replicas of each partition of each topic that is there; internal topics come last.
        cluster: its brokers and controllers.
        limit: for all steps, in seconds.

    Raises:
        RefusedError: 400, with all that is wrong; ``steps:2`` is the second step.
    """
    try:
        found = parse_steps(node_of([dict(value) for value in values]), SOURCE)
        created = [
            step for step in found if isinstance(step, broker_steps.CreateTopic) and step.name not in assignments
        ]
        topics = (
            *(Topic(name, tuple(tuple(replicas) for replicas in one)) for name, one in assignments.items()),
            *(Topic(step.name, step.assignment) for step in created),
        )
        scenario = Scenario(
            SOURCE,
            "",
            "",
            "",
            len(cluster.brokers),
            0,
            {},
            topics,
            tuple(_resolved(found, assignments)),
            limit,
            cluster.mode,
            0 if cluster.quorum is None else len(cluster.quorum.controllers),
        )
        check_context(scenario, SOURCE)
    except ScenarioError as wrong:
        raise malformed(wrong.message) from None
    return scenario


def _resolved(found: Sequence[step_base.Step], there: Collection[str]) -> Iterator[step_base.Step]:
    """Give each step about a partition its partition (rule 2)."""
    names = sorted({*there} - INTERNAL_TOPICS)
    for number, step in enumerate(found, 1):
        if isinstance(step, broker_steps.CreateTopic) and step.name not in names:
            names.append(step.name)
        if not isinstance(step, step_base.PartitionStep) or step.partition is not None:
            yield step
        elif len(names) == 1:
            yield dataclasses.replace(step, partition=TopicPartition(names[0], 0))
        else:
            raise malformed(f"{SOURCE}:{number}: {step.verb} needs 'partition': the cluster has {len(names)} topics")


def play(scenario: Scenario, there: Collection[str], cluster: LocalCluster) -> dict[str, Any]:
    """Play the steps; blocks until the last one's effect is there.

    Args:
        scenario: the steps.
        there: the names of the topics that are there.
        cluster: its processes.

    Raises:
        RefusedError: 409, a step did not do what it says; 408, it waited in vain. Both with the steps so far.
    """
    begin = time.monotonic()
    outcome = Outcome(SOURCE)
    story: list[str] = []
    directory = _steps_directory(cluster.directory)
    with ClusterConnections(cluster, is_complete=False) as connections:
        player = Player(
            scenario, cluster, connections, story.append, begin + scenario.limit_seconds, outcome, histories=directory
        )
        failure = ""
        try:
            player.take_over(there)
            player.play_steps()
            failure = outcome.failure
        except TimeLimitError as late:
            failure = late.message
            raise _failed(408, "REQUEST_TIMED_OUT", failure, outcome, story) from None
        finally:
            player.close()
    if failure:
        verb = outcome.steps[-1].verb
        is_wait = verb.startswith(("wait_", "expect"))
        status, name = (408, "REQUEST_TIMED_OUT") if is_wait else (409, "STEP_FAILED")
        raise _failed(status, name, failure.replace("line ", "step ", 1), outcome, story)
    return _result(outcome, story)


def _failed(status: int, name: str, message: str, outcome: Outcome, story: list[str]) -> RefusedError:
    return RefusedError(status, name, message, **_result(outcome, story))


def _result(outcome: Outcome, story: list[str]) -> dict[str, Any]:
    done = outcome.as_json()["steps"]
    return {
        "steps": [{"number": one.pop("line"), **one} for one in done],
        "story": [line.strip() for line in story],
    }


def _steps_directory(directory: Path) -> Path:
    """Return a new directory for the histories of these steps."""
    steps = directory / HISTORIES / f"steps-{time.time_ns()}"
    steps.mkdir(parents=True)
    return steps
