"""Numbers with their nouns, for sentences that people read."""


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 record``, ``3 records``.

    Args:
        count: how many.
        noun: the thing that is counted, in singular.
        plural: its plural, if that is not formed with ``s``.
    """
    return f"{count} {noun}" if count == 1 else f"{count} {plural or noun + 's'}"
