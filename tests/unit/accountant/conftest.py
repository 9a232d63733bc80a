from __future__ import annotations

import sys
from pathlib import Path

# Helper modules of these tests; importmode=importlib gives a test no directory of its own on the path.
sys.path.insert(0, str(Path(__file__).parent))
