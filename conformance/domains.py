"""The domain of a chaos run's topics: `topic://`, `persistent://` (the older model, docs/in_stream.md), or one topic of each."""

from __future__ import annotations

import argparse
import difflib

from metadata.records.names import is_persistent

TOPIC, PERSISTENT, MIXED = "topic", "persistent", "mixed"
DOMAINS = (TOPIC, PERSISTENT, MIXED)


def domain(text: str) -> str:
    """What a command line says. Raises ArgumentTypeError, which names the nearest."""
    word = text.strip().lower()
    if word in DOMAINS:
        return word
    near = difflib.get_close_matches(word, DOMAINS, n=1, cutoff=0.0)[0]
    raise argparse.ArgumentTypeError(f"{text!r} is no domain of topics (those are {', '.join(DOMAINS)}), the nearest is {near}")


def named(domain: str, name: str) -> str:
    """The full name of a topic in a domain, which is not `mixed`."""
    return f"{domain}://public/default/{name}"


def keyed(topic: str, **more: str) -> dict[str, str]:
    """The options of a write that say where rows go by their key, and `more` of that sort: a persistent topic is one log and has
    none.
    """
    return {} if is_persistent(topic) else {"keyColumn": "key", **more}
