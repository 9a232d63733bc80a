"""The accountant: compares the responses that producers got with what the cluster kept. Pure; no I/O in here."""

import tidegauge as _tidegauge  # noqa: F401 - puts machine code in place before any module here is looked for
