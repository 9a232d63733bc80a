"""The repository keeps its own rules (tidy as a test)."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
OWN_CODE = ("proto/tidegauge/", "broker/", "controller/", "client/", "spark_jobs/", "lab/", "proof/")


def tracked(*patterns: str) -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("a source archive has no list of tracked files")
    out = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / line for line in out.splitlines() if (ROOT / line).exists()]


def own_python() -> list[Path]:
    return [
        path for path in tracked("*.py") if "_pb2" not in path.name and str(path.relative_to(ROOT)).startswith(OWN_CODE)
    ]


def test_constraints_are_name_and_version_only():
    """Lock files write index addresses; ours must not."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert lines
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+", line)] == []


LARGEST_BYTES = 1_000_000


def test_no_file_of_a_build_or_a_measurement_is_tracked():
    """Wheels, coverage data and archives are made again when they are needed; a clone carries sources."""
    made = {".whl", ".coverage", ".so", ".pyc", ".zip", ".tar", ".jar", ".tgz"}
    files = tracked()
    assert [path for path in files if path.suffix in made or path.name.startswith(".coverage")] == []
    assert [path for path in files if path.stat().st_size > LARGEST_BYTES] == []


EXTRAS_OF = {"broker": (), "spark": ("spark", "demo"), "action": ("spark",)}


def pins(text: str) -> dict[str, str]:
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([A-Za-z0-9.!+_-]+)", text, re.MULTILINE))


@pytest.mark.parametrize("name", [*EXTRAS_OF, "build", "pyspark"])
def test_what_images_install_is_pinned_by_version_and_hash(name: str):
    """`make locked` writes them; pip --require-hashes refuses packages without one."""
    text = (ROOT / "docker" / "locked" / f"{name}.txt").read_text()
    for requirement in text.replace("\\\n", " ").splitlines():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+( +--hash=sha256:[0-9a-f]{64})+", requirement)
    constrained = {
        key.lower().replace("_", "-"): one for key, one in pins((ROOT / "constraints.txt").read_text()).items()
    }
    assert {key: one for key, one in pins(text).items() if constrained.get(key, one) != one} == {}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    if name in EXTRAS_OF:
        extras = [one for extra in EXTRAS_OF[name] for one in project["optional-dependencies"][extra]]
        asked = {re.match(r"[a-z0-9-]+", one)[0] for one in [*project["dependencies"], *extras]}
        assert asked <= pins(text).keys() <= constrained.keys() | asked


def test_images_and_the_action_install_by_hash_alone():
    dockerfile, action = (ROOT / "Dockerfile").read_text(), (ROOT / "action.yml").read_text()
    installs = re.findall(r"pip\"? (?:install|download) (.*)", dockerfile + action)
    assert len(installs) == 12
    assert [one for one in installs if "--require-hashes" not in one and "--no-deps" not in one] == []


def test_no_file_names_an_index_or_a_home_directory():
    bad = re.compile(rb"https?://(?:files|registry|repo1?|deb|proxy|index)\.[a-z]|/root/|/home/[a-z]+/")
    offenders = [
        str(path.relative_to(ROOT))
        for path in tracked()
        if path.name != Path(__file__).name and path.is_file() and bad.search(path.read_bytes())
    ]
    assert offenders == []


def test_modules_begin_with_their_contract():
    bare = [
        str(path.relative_to(ROOT))
        for path in own_python()
        if path.stat().st_size and not path.read_text().lstrip().startswith(('"""', "#!", 'r"""'))
    ]
    assert bare == []


def test_files_and_functions_stay_readable():
    """Small files: one that outgrows 600 lines wants to be two. A generated mirror is as long as its original needs."""
    long_files = [
        f"{path.relative_to(ROOT)}: {lines}"
        for path in own_python()
        if (lines := path.read_text().count("\n")) > 600 and path.name != "sync_cluster.py"
    ]
    assert long_files == []


def test_every_ignore_has_its_reason_beside_it():
    bare = re.compile(r"#\s*(?:noqa(?::\s*[A-Z0-9, ]+)?|type:\s*ignore(?:\[[a-z-, ]+\])?)\s*$")
    offenders = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in own_python()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if bare.search(line)
    ]
    assert offenders == []


def test_tests_never_sleep():
    """Waiting is on state; the loop that looks again may pause, but only in tests/waiting.py."""
    sleeper = re.compile(r"\b(?:time|asyncio)\.sleep\(")
    offenders = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked("tests/*.py")
        if path.name not in {"waiting.py", Path(__file__).name}
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if sleeper.search(line) and "sleep(0)" not in line
    ]
    assert offenders == []
