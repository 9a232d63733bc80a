"""Prove the core: the seeded simulator, the exhaustive search, and their verbs."""

import tidegauge as _tidegauge  # noqa: F401 - puts machine code in place before any module here is looked for
