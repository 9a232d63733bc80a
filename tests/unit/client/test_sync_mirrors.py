"""The synchronous mirrors match the asynchronous classes: generated, and compared here."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from tidegauge_client.admin import Admin
from tidegauge_client.consumer import Consumer
from tidegauge_client.group.group_consumer import GroupConsumer
from tidegauge_client.group.sync import SyncGroupConsumer
from tidegauge_client.producer import Producer
from tidegauge_client.sync import SyncAdmin, SyncConsumer, SyncProducer
from tidegauge_lab.pytest_plugin.aio import AsyncCluster
from tidegauge_lab.pytest_plugin.cluster import Cluster

ROOT = Path(__file__).parents[3]
NEEDS_A_LOOP = {"at_controller"}
"""Takes a coroutine function, so it is of no use without an event loop."""


def test_generated_mirrors_are_those_of_the_asynchronous_classes():
    """After a change of one of them: make mirrors."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "generate-mirrors.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("original", "mirror"),
    [
        (Producer, SyncProducer),
        (Consumer, SyncConsumer),
        (GroupConsumer, SyncGroupConsumer),
        (Admin, SyncAdmin),
        (AsyncCluster, Cluster),
    ],
)
def test_each_public_method_has_a_mirror_with_the_same_parameters(original, mirror):
    names = {name for name in dir(original) if not name.startswith("_")} - NEEDS_A_LOOP
    assert names - {"local"} <= set(dir(mirror))
    for name in names - {"start", "stop"}:
        found = getattr(original, name)
        if inspect.isfunction(found):
            assert list(inspect.signature(getattr(mirror, name)).parameters) == list(
                inspect.signature(found).parameters
            ), name


def test_no_mirror_of_a_method_is_a_coroutine():
    for mirror in (SyncProducer, SyncConsumer, SyncGroupConsumer, SyncAdmin, Cluster):
        assert not [name for name, _ in inspect.getmembers(mirror, inspect.iscoroutinefunction)]
