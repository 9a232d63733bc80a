"""With --py-files alone, Spark's planner of streams does not find the package: what it is sent says where to look."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import tidegauge
import tidegauge_client
import tidegauge_spark

SENDER = """
import base64, sys
sys.path += [sys.argv[1], sys.argv[2]]
from pyspark import cloudpickle
from tidegauge_spark.source import TidegaugeDataSource
given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders", "topic": "t"}
print(base64.b64encode(cloudpickle.dumps(TidegaugeDataSource(given))).decode())
"""
RECEIVER = """
import base64, pickle, sys
sys.path.append(sys.argv[1])
try:
    import tidegauge_spark.source
    sys.exit("the package is found without any help")
except ModuleNotFoundError:
    sys.modules.pop("tidegauge_spark", None)  # an editable install leaves the jobs' directory, without a package
source = pickle.loads(base64.b64decode(sys.argv[2]))
import tidegauge_spark
from pyspark import cloudpickle
from pyspark.sql.types import StructType
for one in (source.reader(source.schema()), source.streamReader(source.schema())):
    again = pickle.loads(cloudpickle.dumps(one))
    print(tidegauge_spark.__file__, type(again).__name__, again.options.subscription)
writer = source.streamWriter(StructType().add("value", "string"), False)
print(pickle.loads(cloudpickle.dumps(writer)).options.topic)
"""


def test_a_process_without_the_package_finds_it_where_the_sender_did(tmp_path: Path) -> None:
    """-I -S: no PYTHONPATH and no .pth files; only the libraries are there, and the sender's archive."""
    archive = tmp_path / "tidegauge.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        for package in (tidegauge, tidegauge_client, tidegauge_spark):
            directory = Path(package.__path__[0])
            for file in directory.rglob("*.py"):
                zipped.write(file, file.relative_to(directory.parent))
    libraries = sysconfig.get_path("purelib")

    def run(code: str, *arguments: str) -> str:
        command = [sys.executable, "-I", "-S", "-W", "ignore", "-c", code, libraries, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    reported = run(RECEIVER, run(SENDER, str(archive))).splitlines()
    module = f"{archive}/tidegauge_spark/__init__.py"
    assert reported == [
        f"{module} TidegaugeReader Subscribe[orders]",
        f"{module} TidegaugeStreamReader Subscribe[orders]",
        "t",
    ]
