"""The responses to failed requests that the request classes of Apache Kafka 3.9.1 make, for every API and version.

The requests are the samples of tests/unit/server/sample_requests.py; Kafka's classes run without a broker
(ErrorSide.java), from Maven Central; without Maven it says so. Their output is compared with the recording in
tests/unit/server/kafka_error_responses.txt.gz, by which the unit tests judge ours; ``--record`` writes that file.
"""

from __future__ import annotations

import argparse
import gzip
import subprocess
import sys
from pathlib import Path

from fetched import Unavailable
from jars import KAFKA, kafka_jars

from tidegauge.errors import ErrorCode
from tidegauge.java import java_program
from tidegauge.kafka.frames import encode, joined

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/unit/server"))
from sample_requests import each_request, sample

SIDE = Path(__file__).parent / "ErrorSide.java"
TESTS = Path(__file__).parents[1] / "tests/unit/server"
RECORDED = TESTS / "kafka_error_responses.txt.gz"


def kafkas() -> list[str]:
    """Return a line for each sample: key, version, kind, and the body in hexadecimal.

    Raises:
        Unavailable: Kafka's jars can't be had.
    """
    samples = list(each_request())
    error = int(ErrorCode.UNKNOWN_SERVER_ERROR)
    given = "".join(
        f"{key} {version} {error} {joined(encode(key, version, sample(key, version, kind))).hex()}\n"
        for key, version, kind in samples
    )
    command = [java_program(), "-cp", f"{kafka_jars()}/*", str(SIDE)]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ErrorSide failed: {done.stderr[-2000:]}")
    found = zip(samples, done.stdout.splitlines(), strict=True)
    return [f"{key} {version} {kind} {body}" for (key, version, kind), body in found]


def main() -> int:
    """Compare or record; the exit status is 1 where a response differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="write what Kafka's classes respond")
    options = parser.parse_args()
    try:
        found = kafkas()
    except Unavailable as problem:
        print(f"Not compared: {problem}")
        return 0
    if options.record:
        RECORDED.write_bytes(gzip.compress("\n".join(found).encode(), mtime=0))
    recorded = gzip.decompress(RECORDED.read_bytes()).decode().splitlines()
    different = [line for line, other in zip(found, recorded, strict=False) if line != other]
    print(f"{len(found)} responses to failed requests by Kafka {KAFKA}, {len(different)} other than recorded")
    print("\n".join(different[:3]))
    return 1 if different or len(found) != len(recorded) else 0


if __name__ == "__main__":
    sys.exit(main())
