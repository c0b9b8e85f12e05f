"""The topics of a read: topics given by name, or the topics of a namespace that match a pattern."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from metadata.common.errors import OptionError
from metadata.common.options import Given, bad, words
from metadata.records.names import SegmentName, topic_name
from metadata.records.patterns import compiled
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.errors import TopicMissing
from spark_txn_source.option_table import PATH, PATHS, TOPIC, TOPICS

_PLAIN: Final = r"((?:[\w\-=:]|\\[.\-])+)"
_BEGIN: Final = re.compile(rf"topic://{_PLAIN}/{_PLAIN}/(?![?*+{{])")
_ATOMS: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[^|()]", re.DOTALL)
_ADVICE: Final = r"Begin it with one tenant and one namespace, as in topic://public/default/flights-.*"


@dataclass(frozen=True)
class TopicsPattern:
    """All scalable topics of a namespace (`tenant/namespace`) whose full name matches the regular expression from end to end.
    Topics whose name begins with `__` are left out.
    """

    namespace: str
    regex: str

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return compiled(self.regex)


Selection = tuple[str, ...] | TopicsPattern


def pattern(name: str, text: str) -> TopicsPattern:
    """Parse the option `topicsPattern`. A broker lists the topics of one namespace at a time, so the pattern must begin with one
    tenant and namespace. Raises OptionError.
    """
    word = words(name, text)
    compiled(word, f"option {name}")
    begin = _BEGIN.match(word)
    if begin is None:
        raise bad(
            name, text, "it does not begin with topic://tenant/namespace/, and a broker lists one namespace at a time", _ADVICE
        )
    if "|" in _without_groups(_ATOMS.sub("", word[begin.end() :])):
        raise bad(
            name, text, "its alternatives may be in several namespaces", "Put the alternatives into a group: topic://t/n/(a|b)"
        )
    return TopicsPattern("/".join(re.sub(r"\\(.)", r"\1", one) for one in begin.groups()), word)


def _without_groups(marks: str) -> str:
    """Return `marks`, a text of `|`, `(` and `)`, without its groups in parentheses."""
    while (found := re.sub(r"\([^()]*\)", "", marks)) != marks:
        marks = found
    return marks


def selection(given: Given, matching: TopicsPattern | None) -> Selection:
    """Return the topics that the options give. `matching`: the value of `topicsPattern`. Raises OptionError unless exactly one of
    the ways to give topics is used.
    """
    path, topic = given.get(PATH), given.get(TOPIC)
    if path is not None and topic is not None and path != topic:
        raise OptionError(
            f"The argument of load() is {path} and the option topic is {topic}: they differ.", advice="Give one of the two."
        )
    one = path if topic is None else topic
    ways = {
        "topic" if topic is not None else "load(name)": None if one is None else (one,),
        "topics": given.get(TOPICS),
        "load([...])": given.get(PATHS),
    }
    used = [way for way, names in ways.items() if names] + ([] if matching is None else ["topicsPattern"])
    if not used:
        raise OptionError("There is no topic to read.", advice="Give load(name), or the option topic, topics or topicsPattern.")
    if len(used) > 1:
        raise OptionError(f"The topics are given in {len(used)} ways: {', '.join(used)}.", advice="Give one of them.")
    if matching is not None:
        return matching
    names = tuple(dict.fromkeys(ways[used[0]] or ()))
    for name in names:
        if isinstance(name, SegmentName) and name.topic in names:
            raise OptionError(
                f"{name} is a segment of {name.topic}, which is read whole: its rows would be read twice.",
                advice="Name the topic or its segments, not both.",
            )
    return tuple(map(str, names))


def topics_now(client: PulsarClient, selected: Selection) -> tuple[str, ...]:
    """Return the full names of the topics that are read, in a fixed order. Raises TopicMissing if no topic matches a pattern."""
    if isinstance(selected, tuple):
        return selected
    names = sorted(name for name in client.topics(selected.namespace) if not topic_name(name).name.startswith("__"))
    found = tuple(name for name in names if selected.compiled.fullmatch(name))
    if not found:
        raise TopicMissing(
            f"No topic of {selected.namespace} matches {selected.regex} (topics: {len(names)}).",
            advice="Create the topic, or correct topicsPattern. It must match the full name, from end to end.",
        )
    return found
