"""The languages of what people read: English, and Chinese for pages of labs, stories and ``explain``."""

from __future__ import annotations

import re
from collections.abc import Mapping

ENGLISH = "en"
CHINESE = "zh"
LANGUAGES = (ENGLISH, CHINESE)


def locale_language(environment: Mapping[str, str]) -> str:
    """Return the language of a locale's messages.

    The first of three variables that is set decides (POSIX, 8.2).
    """
    locale = next((found for name in ("LC_ALL", "LC_MESSAGES", "LANG") if (found := environment.get(name))), "")
    return CHINESE if re.match(r"zh(?![a-z])", locale, re.IGNORECASE) else ENGLISH
