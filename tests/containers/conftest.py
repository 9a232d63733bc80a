"""The image of a whole cluster, which ``tools/compose-test.sh --cluster`` builds; only it collects these tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMAGE = os.environ.get("TIDEGAUGE_CLUSTER_IMAGE", "")
collect_ignore_glob = [] if IMAGE else ["test_*.py"]
sys.path.insert(0, str(ROOT / "examples" / "python"))
