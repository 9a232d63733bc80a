"""The broker: pure replication core, purgatory, log on disk, and the server shell around them."""

import tidegauge as _tidegauge  # noqa: F401 - puts machine code in place before any module here is looked for
