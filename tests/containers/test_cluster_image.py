"""One container runs a whole cluster: mapped ports stay, addresses can be given later, healthy means ready."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from steering import Control
from tests.containers.conftest import IMAGES
from tests.containers.failover import lives_through_a_killed_leader
from tests.containers.recipes import RECIPES
from tests.waiting import until

pytestmark = pytest.mark.timeout(1800)
KAFKA = (9092, 9093, 9094)
CONTROL = 19079
FETCH_SECONDS = 900


def docker(*words: str) -> str:
    done = subprocess.run(["docker", *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(params=IMAGES)
def container(request: pytest.FixtureRequest) -> Iterator[str]:
    """A container of each image, whose ports the engine has chosen."""
    ports = [word for port in (*KAFKA, CONTROL) for word in ("--publish", f"127.0.0.1::{port}")]
    name = docker("run", "--detach", *ports, request.param)
    try:
        yield name
    finally:
        print(docker("logs", "--tail", "40", name))
        docker("rm", "--force", "--volumes", name)


def address(container: str, port: int) -> str:
    return docker("port", container, str(port)).splitlines()[0]


def health(container: str) -> str:
    return docker("inspect", "--format", "{{.State.Health.Status}}", container)


def test_a_killed_broker_keeps_its_mapped_port(container: str) -> None:
    """Healthy when ``/v1/cluster`` says ready; then addresses are given, and a leader is killed under a producer."""
    until(lambda: health(container) == "healthy", timeout=180, what="the container is healthy")
    control = Control(f"http://{address(container, CONTROL)}")
    assert control.cluster()["ready"]
    servers = [address(container, port) for port in KAFKA]
    control.ask("PUT", "/v1/advertised", dict(zip("012", servers, strict=True)))
    lives_through_a_killed_leader(control, servers)
    assert [address(container, port) for port in KAFKA] == servers
    assert health(container) == "healthy"
    assert docker("inspect", "--format", "{{.RestartCount}}", container) == "0"


@pytest.mark.parametrize("language", RECIPES)
def test_a_recipe_of_testcontainers_works_as_it_stands(language: str, tmp_path: Path) -> None:
    """The code of docs/testcontainers.md starts the cluster, and its addresses live through a killed leader."""
    recipe = RECIPES[language]
    for program in recipe.needs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    recipe.write(tmp_path)
    # The library's helper that removes containers of a test that died is an image of its own: it may not be had here.
    environment = os.environ | {"TESTCONTAINERS_RYUK_DISABLED": "true", "NO_COLOR": "1"}
    # A library that takes this machine for a container would ask for ports at its gateway.
    environment["TESTCONTAINERS_HOST_OVERRIDE"] = "127.0.0.1"
    for command in [*recipe.fetch, *recipe.build]:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False
        )
        said = (done.stdout + done.stderr)[-2000:]
        if done.returncode and command in recipe.fetch:
            pytest.skip(f"{' '.join(command)} does not work here: {said}")
        assert done.returncode == 0, said
    with subprocess.Popen(
        recipe.command, cwd=tmp_path, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        try:
            line = next((line for line in program.stdout if line.startswith('{"control"')), "")
            assert line, f"the recipe ended with {program.wait()}"
            addresses = json.loads(line)
            lives_through_a_killed_leader(Control(addresses["control"]), addresses["servers"])
        finally:
            with contextlib.suppress(BrokenPipeError):  # it has ended; its output is shown above
                program.stdin.write("\n")
                program.stdin.close()
        program.stdout.read()
        assert program.wait(120) == 0
