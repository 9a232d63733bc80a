"""The shipped scenarios on real processes, by the command line (docs/scenarios.md).

The stories of older rules must lose or diverge every time: once each here, ten times each in ``make test-long``,
together with the stories that are left out here for the sake of time. Several play at once, as they mostly wait for
ZooKeeper sessions to end; they share one ZooKeeper, each under a chroot of its own.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from tidegauge_lab import scenario
from tidegauge_lab.local.waiting import TimeLimitError
from tidegauge_lab.scenario import shipped_names

pytestmark = pytest.mark.integration

TIDEGAUGE = str(Path(sys.executable).parent / "tidegauge")
AT_ONCE = 4
LIMIT_SECONDS = 240
OLD_RULES = [
    "loss-high-watermark",
    "loss-by-restart",
    "divergence-high-watermark",
    "kip-279-fast-failover",
    "zombie-follower-kip-279",
]
EVERY_TIME = [
    "loss-high-watermark",
    "loss-cured",
    "walkthrough-two-replicas",
    "walkthrough-three-replicas",
    "walkthrough-purgatory",
]
RARELY = [name for name in shipped_names() if name not in EVERY_TIME]
IN_KRAFT = [name for name in shipped_names() if not scenario.load(name).zookeeper_only]
TIMES = 10

Story = dict[str, Any]
Play = Callable[[str, int], Future[Story]]


def environment(directory: Path) -> dict[str, str]:
    """All temporary directories inside this one, where leftovers are looked for; runs at one time must share it."""
    directory.mkdir(parents=True, exist_ok=True)
    return {**os.environ, "TMPDIR": str(directory), "NO_COLOR": "1"}


def play(name: str, directory: Path, zookeeper: str) -> Story:
    """Run a scenario as a user does; its JSON, with the exit code. ``NAME@kraft`` plays it in KRaft mode."""
    name, _, mode = name.partition("@")
    in_kraft = bool(mode) or scenario.load(name).mode == "kraft"
    done = subprocess.run(
        [TIDEGAUGE, "scenario", "run", name, "-o", "json", *(["--kraft"] if in_kraft else ["--zookeeper", zookeeper])],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
        env=environment(directory),
    )
    assert done.stdout, f"{name} wrote nothing but: {done.stderr}"
    return {**json.loads(done.stdout), "exit_code": done.returncode, "stderr": done.stderr}


@pytest.fixture(scope="module")
def stories(
    zookeeper: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[dict[str, Future[Story]]]:
    """The runs that the selected tests of this module need, some at a time."""
    directory = tmp_path_factory.mktemp("scenarios")
    wanted = [
        str(item.callspec.params["story"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module and "story" in item.fixturenames
    ]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {story: pool.submit(play, story.split("#")[0], directory, zookeeper) for story in wanted}


@pytest.fixture
def played(story: str, stories: dict[str, Future[Story]]) -> Story:
    """One story's outcome: all of its expectations held."""
    outcome = stories[story].result()
    last = "\n".join(f"{step['seconds']} {step['text']}\n    {step['state']}" for step in outcome["steps"][-6:])
    assert outcome["passed"], f"{outcome['failure']}\n{last}"
    assert outcome["exit_code"] == 0
    assert outcome["stderr"] == ""
    return outcome


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("story", EVERY_TIME)
def test_story(played: Story, story: str) -> None:
    assert played["name"] == story
    assert played["expectations"] > 5


@pytest.mark.long
@pytest.mark.parametrize("story", RARELY)
def test_other_story(played: Story, story: str) -> None:
    assert played["name"] == story


@pytest.mark.long
@pytest.mark.parametrize("story", [f"{name}#{number}" for name in OLD_RULES for number in range(1, TIMES + 1)])
def test_an_older_rule_loses_or_diverges_every_time(played: Story, story: str) -> None:
    assert played["steps"][-1]["verb"] == "expect"


@pytest.mark.long
@pytest.mark.parametrize("story", [f"{name}@kraft" for name in IN_KRAFT])
def test_a_story_in_kraft_mode(played: Story, story: str) -> None:
    """Each that is of both modes holds in the other one, too; docs/which-mode.md has the table."""
    assert f"{played['name']}@kraft" == story


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("story", ["walkthrough-two-replicas@kraft"])
def test_a_story_needs_no_zookeeper(played: Story, story: str) -> None:
    del story
    assert played["expectations"] > 5


FROZEN = ["coordinator-dies-completing", "coordinator-dies-deciding", "data-leader-dies", "offsets-leader-dies"]


def frozen(name: str) -> str:
    """A shipped story with SIGSTOP for each SIGKILL, SIGCONT for each start, and short timeouts of requests."""
    text = (Path(scenario.__file__).parent / "files" / f"{name}.yaml").read_text()
    for pattern, words in (
        (r"^  - kill: ", "  - pause: "),
        (r"^  - start: ", "  - resume: "),
        (r"^(  - start_producer: .*)}$", r"\1, settings: {socket.timeout.ms: 3000}}"),
        (
            r"^cluster: {brokers: 5, controller: 0}$",
            "limit_seconds: 230\ncluster: {brokers: 5, controller: 0, settings: {request.timeout.ms: 5000}}",
        ),
    ):
        text, count = re.subn(pattern, words, text, flags=re.MULTILINE)
        assert count or "start" in pattern, pattern
    return text


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FROZEN)
def test_a_transaction_gets_to_its_end_where_brokers_freeze_at_each_step(
    name: str, zookeeper: str, tmp_path: Path
) -> None:
    """SIGSTOP in place of SIGKILL: connections stay open, and requests in flight end by their timeouts."""
    path = tmp_path / f"{name}.yaml"
    path.write_text(frozen(name))
    outcome = play(str(path), tmp_path / "run", zookeeper)
    assert outcome["passed"], outcome["failure"]
    assert outcome["expectations"] > 5


def table(outcome: Story, number: int) -> list[list[Any]]:
    """A table of a walk-through without its phase."""
    tables = [step["table"] for step in outcome["steps"] if step["table"]]
    return [[row["attribute"], row["old"], row["new"], row["note"]] for row in tables[number]]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("story", ["walkthrough-two-replicas", "walkthrough-purgatory"])
def test_the_walkthrough_prints_its_tables(played: Story, story: str) -> None:
    """The values after the produce, the first round and the second, of two replicas."""
    first = "the first fetch carried offset 0" if story == "walkthrough-purgatory" else "no fetch yet"
    copied = "no new data written" if story == "walkthrough-purgatory" else "no fetch yet"
    assert table(played, 0) == [
        ["Leader LEO", 0, 1, "1 record written"],
        ["Remote LEO", 0, 0, first],
        ["Leader HW", 0, 0, "min(LeaderLEO=1, RemoteLEO=0)=0"],
        ["Follower LEO", 0, 0, copied],
        ["Follower HW", 0, 0, "min(LeaderHW=0, FollowerLEO=0)=0"],
    ]
    assert table(played, 1) == [
        ["Leader LEO", 0, 1, "1 record written"],
        ["Remote LEO", 0, 0, "the first fetch carried offset 0"],
        ["Leader HW", 0, 0, "min(LeaderLEO=1, RemoteLEO=0)=0"],
        ["Follower LEO", 0, 1, "1 record replicated"],
        ["Follower HW", 0, 0, "min(LeaderHW=0, FollowerLEO=1)=0"],
    ]
    assert table(played, 2) == [
        ["Leader LEO", 1, 1, "no new data written"],
        ["Remote LEO", 0, 1, "the second fetch carried offset 1"],
        ["Leader HW", 0, 1, "min(LeaderLEO=1, RemoteLEO=1)=1"],
        ["Follower LEO", 1, 1, "no new data written"],
        ["Follower HW", 0, 1, "min(LeaderHW=1, FollowerLEO=1)=1"],
    ]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("story", ["walkthrough-three-replicas"])
def test_the_walkthrough_of_three_replicas_waits_for_the_slower_follower(played: Story, story: str) -> None:
    """Remote LEO and HW of each follower; the leader's HW is the smallest of three log end offsets."""
    del story
    rounds = [
        ([(0, 1), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0)], "RemoteLEO(1)=0, RemoteLEO(2)=0)=0"),
        ([(0, 1), (0, 0), (0, 0), (0, 0), (0, 1), (0, 1), (0, 0), (0, 0)], "RemoteLEO(1)=0, RemoteLEO(2)=0)=0"),
        ([(1, 1), (0, 1), (0, 0), (0, 0), (1, 1), (1, 1), (0, 0), (0, 0)], "RemoteLEO(1)=1, RemoteLEO(2)=0)=0"),
        ([(1, 1), (1, 1), (0, 1), (0, 1), (1, 1), (1, 1), (0, 0), (0, 1)], "RemoteLEO(1)=1, RemoteLEO(2)=1)=1"),
        ([(1, 1), (1, 1), (1, 1), (1, 1), (1, 1), (1, 1), (0, 1), (1, 1)], "RemoteLEO(1)=1, RemoteLEO(2)=1)=1"),
    ]
    ends = ["Remote LEO (1)", "Remote LEO (2)", "Leader HW", "Follower LEO (1)", "Follower LEO (2)"]
    names = ["Leader LEO", *ends, "Follower HW (1)", "Follower HW (2)"]
    for number, (wanted, of_three) in enumerate(rounds):
        rows = table(played, number)
        assert [(row[0], row[1], row[2]) for row in rows] == [
            (name, old, new) for name, (old, new) in zip(names, wanted, strict=True)
        ]
        assert rows[3][3] == f"min(LeaderLEO=1, {of_three}"


def left_in(temporary: Path) -> list[str]:
    """Return the leftovers of a run, without the file of reserved ports."""
    return [path.name for path in temporary.iterdir() if not path.name.startswith("tidegauge-ports-")]


ONE_BROKER = """\
title: A story for the test of the runner.
cluster: {brokers: 1}
topics:
  - {name: story, assignment: 0}
steps:
  - produce: m1
  - %s
"""


def test_an_expectation_that_does_not_hold_ends_with_1_and_its_line(tmp_path: Path, zookeeper: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(ONE_BROKER % "expect: {leo: {0: 2}, answers: {m1: ack}, isr: [0]}")
    done = subprocess.run(
        [TIDEGAUGE, "scenario", "run", str(file), "--zookeeper", zookeeper],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
        env=environment(tmp_path / "temporary"),
    )
    assert done.returncode == 1
    assert re.fullmatch(r"wrong failed: line 7: expect .*: the LEO of broker 0 is 1, not 2\n", done.stderr), done.stderr
    assert "0: 1/1*   ISR 0  epoch 0  leader 0" in done.stdout
    assert left_in(tmp_path / "temporary") == []


def test_a_test_plays_a_story_of_its_own_and_the_limit_holds(tmp_path: Path, zookeeper: str) -> None:
    file = tmp_path / "short.yaml"
    file.write_text(ONE_BROKER % "expect: {leo: {0: 1}, answers: {m1: ack}, isr: [0]}")
    outcome = scenario.play(scenario.load(str(file)), tmp_path / "short", zookeeper=zookeeper)
    assert outcome.passed, outcome.failure
    file.write_text("limit_seconds: 0.001\n" + file.read_text())
    with pytest.raises(TimeLimitError, match="short is not at its end"):
        scenario.play(scenario.load(str(file)), tmp_path / "over", zookeeper=zookeeper)


INJECTED = """\
title: Errors, delays and disks that a story injects.
cluster: {brokers: 3, controller: 0}
topics:
  - {name: story, assignment: [1, 2]}
steps:
  - inject_error: {broker: 1, rpc: Produce, error: NOT_ENOUGH_REPLICAS, nth: 2}
  - produce: m1
  - produce: {values: m2, via: 1, error: NOT_ENOUGH_REPLICAS}
  - produce: m3
  - isolate: {broker: 1, from: clients, delay_ms: 50}
  - inject_disk: {broker: 1, delay_ms: 50, operation: append, path: story-0}
  - produce: m4
  - clear_faults: 1
  - sync: [1, 2]
  - produce: m5
  - wait_leo: {2: 4}
  - expire_zk_session: 2
  - wait_epoch: 1
  - wait_isr: [1, 2]
  - inject_disk: {broker: 1, errno: EIO, operation: append, path: story-0}
  - produce: {values: m6, via: 1, error: KAFKA_STORAGE_ERROR}
  - wait_leader: 2
  - produce: m7
  - verify: {}
  - expect: {isr: [2], log: {2: [m1, m3, m4, m5, m7]}, answers: {m2: NOT_ENOUGH_REPLICAS}}
"""


def test_a_story_injects_errors_delays_and_failing_disks(tmp_path: Path, zookeeper: str) -> None:
    """The complete vocabulary of faults, also what a broker takes from `inject-error` and `inject-disk`."""
    file = tmp_path / "injected.yaml"
    file.write_text(INJECTED)
    reported: list[str] = []
    outcome = scenario.play(scenario.load(str(file)), tmp_path / "run", zookeeper=zookeeper, tell=reported.append)
    assert outcome.passed, "\n".join([outcome.failure, *reported])
    assert any("Produce responds with NOT_ENOUGH_REPLICAS" in line for line in reported), reported


def test_ctrl_c_takes_the_cluster_and_its_zookeeper_down(tmp_path: Path) -> None:
    file = tmp_path / "endless.yaml"
    file.write_text(ONE_BROKER % "wait_leader: none")
    temporary = tmp_path / "temporary"
    with subprocess.Popen(
        [TIDEGAUGE, "scenario", "run", "--verbose", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(temporary),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        if not any("Wait until there is no leader" in line for line in process.stdout):
            pytest.fail(f"it ended before its last step: {process.stderr.read()}")
        pids = [int(path.read_text().split()[0]) for path in temporary.glob("*/**/*.pid")]
        assert len(pids) == 2, "a ZooKeeper and a broker"
        process.send_signal(signal.SIGINT)
        assert process.wait(150) == 130
    until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in pids), what="all processes are gone")
    assert left_in(temporary) == []
