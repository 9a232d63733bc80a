"""The images of a whole cluster, which ``tools/compose-test.sh --cluster`` builds; only it collects these tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMAGES = os.environ.get("TIDEGAUGE_CLUSTER_IMAGES", "").split()
"""In ZooKeeper mode, and in KRaft mode."""
collect_ignore_glob = [] if IMAGES else ["test_*.py"]
sys.path.insert(0, str(ROOT / "examples" / "python"))
