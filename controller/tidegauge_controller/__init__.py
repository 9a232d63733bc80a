"""The controller: pure decisions, and their shell on ZooKeeper."""

import tidegauge as _tidegauge  # noqa: F401 - puts machine code in place before any module here is looked for
