"""``tidegauge snapshot`` and ``restore``: the data of a whole cluster under a name, and back."""

from __future__ import annotations

import time
from pathlib import Path

import click

from tidegauge.cli import directory_option, output_option, print_json, print_text, say
from tidegauge_lab.cli.verbs import lab_verb
from tidegauge_lab.local.cluster import LocalCluster


@click.command()
@click.argument("name")
@directory_option
@output_option
@lab_verb
def snapshot(name: str, directory: Path, output: str) -> None:
    """Copy the data of all nodes and ZooKeeper under NAME; the cluster is stopped for it and started again."""
    began = time.monotonic()
    cluster = LocalCluster(directory)
    cluster.snapshot(name)
    for note in cluster.notes:
        say(note)
    _say(f"Took snapshot {name}", name, began, output)


@click.command()
@click.argument("name")
@directory_option
@output_option
@lab_verb
def restore(name: str, directory: Path, output: str) -> None:
    """Replace the data by a snapshot's; the cluster is up and ready afterwards."""
    began = time.monotonic()
    cluster = LocalCluster(directory)
    cluster.restore(name)
    for note in cluster.notes:
        say(note)
    _say(f"Restored {name}: the cluster is ready", name, began, output)


def _say(sentence: str, name: str, began: float, output: str) -> None:
    took_ms = round((time.monotonic() - began) * 1000)
    if output == "json":
        print_json({"snapshot": name, "took_ms": took_ms})
    else:
        print_text(f"{sentence} ({took_ms / 1000:.1f} s).")
