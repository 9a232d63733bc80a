"""``tidegauge format`` beside ``kafka-storage format`` of 4.3.1: the same sentences, the same files.

Needs Maven, or the jars that it brought before; if they can't be had, the test says so and is skipped.
"""

from __future__ import annotations

import importlib
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tidegauge.java import java_program
from tidegauge_broker.log.dump_verb import dump_log
from tidegauge_broker.server.quorum.format_verb import format_storage

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1200)]

BENCH = Path(__file__).parents[2] / "bench"
CLUSTER = "pQKNjKG6SIW1R46E3fVjJA"
DIRECTORY = "ERERERERQRGRERERERERAA"
CONTROLLER = """process.roles={roles}
node.id=3000
listeners={listeners}
controller.listener.names=CONTROLLER
log.dirs={at}/a,{at}/b
{voters}
"""
STATIC = "controller.quorum.voters=3000@127.0.0.1:9393"
DYNAMIC = "controller.quorum.bootstrap.servers=127.0.0.1:9393"
CASES: dict[str, tuple[str, str, list[str]]] = {
    "one of three is needed": ("controller", DYNAMIC, []),
    "standalone": ("controller", DYNAMIC, ["--standalone"]),
    "standalone and static": ("controller", STATIC, ["--standalone"]),
    "standalone broker": ("broker", DYNAMIC, ["--standalone"]),
    "static": ("controller", STATIC, []),
    "static of 3.9": ("controller", STATIC, ["--release-version", "3.9"]),
    "static of 4.0": ("broker,controller", STATIC, ["-r", "4.0", "-f", "transaction.version=0"]),
    "voters": ("controller", DYNAMIC, ["-I", f"3000@127.0.0.1:9393:{DIRECTORY}"]),
    "other voters": ("controller", DYNAMIC, ["-I", f"3001@127.0.0.1:9393:{DIRECTORY}"]),
    "broker with voters": ("broker", DYNAMIC, ["-I", f"3001@127.0.0.1:9393:{DIRECTORY}"]),
    "observer": ("controller", DYNAMIC, ["--no-initial-controllers"]),
    "unknown release": ("controller", DYNAMIC, ["-N", "-r", "9.9"]),
    "unknown feature": ("controller", DYNAMIC, ["-N", "-f", "foo=1"]),
    "kraft.version": ("controller", DYNAMIC, ["-N", "-f", "kraft.version=0"]),
    "scram": ("controller", DYNAMIC, ["-s", "-S", 'SCRAM-SHA-512=[name=a,salt="N3E=",saltedpassword="YCE="]']),
}


@pytest.fixture(scope="module")
def kafka_jars() -> Path:
    """The directory with Kafka's jars."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(BENCH))
        jars: Any = importlib.import_module("jars")
        fetched: Any = importlib.import_module("fetched")
        try:
            return jars.kafka_jars(jars.KAFKA_4)
        except fetched.Unavailable as reason:
            pytest.skip(str(reason))


def masked(text: str, at: Path) -> str:
    """A text without what differs from run to run: paths, times, checksums, random ids."""
    text = text.replace(str(at), "AT")
    text = re.sub(r"CreateTime: \d+|crc: \d+|\"lastContainedLogTimestamp\":[1-9]\d*", "", text)
    text = re.sub(r"salt=\[.*?\], storedKey=\[.*?\], serverKey=\[.*?\]", "keys", text)
    text = re.sub(r"^#.*$", "#", text, flags=re.MULTILINE)
    return re.sub(rf"(?!{CLUSTER}|{DIRECTORY})\b[A-Za-z0-9_-]{{22}}(?=[\"\n])", "RANDOM", text)


def content(at: Path) -> dict[str, str]:
    """Return mode and content of each file of a node, without random parts."""
    found: dict[str, str] = {}
    for path in sorted(file for file in at.rglob("*") if file.is_file() and file.name != "node.properties"):
        mode = stat.filemode(path.stat().st_mode)
        if path.suffix == ".checkpoint":
            text = CliRunner().invoke(dump_log, ["--cluster-metadata-decoder", str(path)]).stdout
        else:
            text = "\n".join(sorted(path.read_text().splitlines())) + "\n"
        found[str(path.relative_to(at))] = f"{mode} {path.stat().st_size} {masked(text, at)}"
    return found


def node(at: Path, roles: str, voters: str) -> str:
    at.mkdir()
    listeners = {"controller": "CONTROLLER://127.0.0.1:9393", "broker": "PLAINTEXT://127.0.0.1:9192"}
    bound = ",".join(listeners[role] for role in roles.split(","))
    file = at / "node.properties"
    file.write_text(CONTROLLER.format(roles=roles, listeners=bound, at=at, voters=voters))
    return str(file)


@pytest.mark.parametrize("case", CASES)
def test_sentences_and_files_are_those_of_kafka_storage(case: str, kafka_jars: Path, tmp_path: Path):
    """StorageTool and Formatter of Kafka 4.3.1; random parts are left out, keys of credentials are hidden here."""
    roles, voters, options = CASES[case]
    ours_at, kafkas_at = tmp_path / "ours", tmp_path / "kafkas"
    command = [java_program(), "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_jars}/*", "kafka.tools.StorageTool", "format"]
    arguments = ["-t", CLUSTER, "-c", node(kafkas_at, roles, voters), *options]
    kafkas = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    ours = CliRunner().invoke(format_storage, ["-t", CLUSTER, "-c", node(ours_at, roles, voters), *options])
    assert ours.exit_code == kafkas.returncode
    # Kafka formats the directories in the order of a hash table.
    sentences = sorted(masked(kafkas.stdout + kafkas.stderr, kafkas_at).splitlines())
    assert sorted(masked(ours.output, ours_at).splitlines()) == sentences
    assert content(ours_at) == content(kafkas_at)
    assert bool(content(ours_at)) == (ours.exit_code == 0)
