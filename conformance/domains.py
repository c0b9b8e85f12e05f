"""The domain of a chaos run's topics: `topic://`, `persistent://` (marker-based, docs/in_stream.md), or one topic of each."""

from __future__ import annotations

import argparse
import difflib

from metadata.records.names import is_persistent

TOPIC, PERSISTENT, MIXED = "topic", "persistent", "mixed"
DOMAINS = (TOPIC, PERSISTENT, MIXED)


def domain(text: str) -> str:
    """Return the domain that an option's value names. Raises ArgumentTypeError, with the nearest domain, if it names none."""
    word = text.strip().lower()
    if word in DOMAINS:
        return word
    near = difflib.get_close_matches(word, DOMAINS, n=1, cutoff=0.0)[0]
    raise argparse.ArgumentTypeError(f"{text!r} is no domain of topics (those are {', '.join(DOMAINS)}), the nearest is {near}")


def named(domain: str, name: str) -> str:
    """Return the full name of a topic. `domain`: `topic` or `persistent`."""
    return f"{domain}://public/default/{name}"


def keyed(topic: str, **more: str) -> dict[str, str]:
    """Return the options of a write that route rows by their key: `keyColumn` and the options `more`. For a persistent topic the
    result is empty, because such a topic has one log and no key.
    """
    return {} if is_persistent(topic) else {"keyColumn": "key", **more}
