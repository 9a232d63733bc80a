"""The lab: a local cluster to start, break and watch."""

import tidegauge as _tidegauge  # noqa: F401 - puts machine code in place before any module here is looked for
