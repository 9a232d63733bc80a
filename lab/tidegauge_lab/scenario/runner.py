"""Plays a scenario from the start of its cluster to its end."""

from __future__ import annotations

import time
from pathlib import Path

from tidegauge_lab.scenario.cluster_connections import ClusterConnections
from tidegauge_lab.scenario.model import Scenario
from tidegauge_lab.scenario.outcome import Outcome, Speak
from tidegauge_lab.scenario.pace import AT_ONCE, Pace
from tidegauge_lab.scenario.player import Check, Player, Tell, nothing_to_check
from tidegauge_lab.scenario.stage import stage


def play(
    scenario: Scenario,
    directory: Path,
    *,
    zookeeper: str | None = None,
    tell: Tell = lambda _: None,
    check: Check = nothing_to_check,
    verbose: bool = False,
    speak: Speak = str,
    pace: Pace = AT_ONCE,
    is_temporary: bool = False,
) -> Outcome:
    """Run a scenario on a cluster of its own in a directory.

    Args:
        scenario: the scenario to play.
        directory: an empty one; data and logs are left in it. However this process ends, the cluster ends
            too.
        zookeeper: one that runs; None: one of its own.
        tell: takes the story, a line at a time.
        check: called again and again while it plays; what it raises ends the run.
        verbose: whether the story has each step as it stands in the file, too, and the expectations.
        speak: gives the story's sentences in the reader's language.
        pace: when each step is played.
        is_temporary: whether the caller deletes the directory: then it is deleted also if this process is killed.

    Raises:
        TidegaugeError: the cluster does not start.
        TimeLimitError: the scenario's limit is over.
    """
    begin = time.monotonic()
    outcome = Outcome(scenario.name)
    with (
        stage(scenario, directory, zookeeper, is_temporary=is_temporary) as cluster,
        ClusterConnections(cluster) as connections,
    ):
        pace.on_stage(cluster)
        deadline = begin + scenario.limit_seconds
        player = Player(
            scenario, cluster, connections, tell, deadline, outcome, check, verbose=verbose, speak=speak, pace=pace
        )
        try:
            player.play()
            pace.at_end(outcome)
        finally:
            player.close()
    outcome.seconds = time.monotonic() - begin
    return outcome
