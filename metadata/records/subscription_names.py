"""The rule for names of subscriptions."""

from __future__ import annotations

from metadata.common.errors import OptionError

MAX_NAME = 256


def checked(name: str) -> str:
    """Return the subscription name without spaces around it. Raises OptionError for an invalid name."""
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise OptionError(f"subscription={name!r:.200} must be 1 to {MAX_NAME} printable characters.", advice="Give a short name.")
    return name.strip()
