"""Finds the current names of the topics of a read."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from metadata.client.client import Client
from metadata.common.errors import OptionError
from metadata.read.selection import AtLog, Pattern, Topics
from metadata.records.names import PersistentName, SegmentName
from spark_txn_source.options import CommonReadOptions, ReadOptions

Options = TypeVar("Options", bound=CommonReadOptions)


def with_current_names(client: Client, options: Options) -> Options:
    """Return the options with the current names of the topics. A `persistent://` name becomes a `topic://` name if no such
    persistent topic exists and its namespace creates new topics as `topic://`. Each `persistent://` name costs one round trip.
    Raises OptionError if the start or the end of the read gives a position of a name that has changed in this way.
    """
    selection = options.selection
    if isinstance(selection, Pattern) or not selection.persistent:
        return options
    from metadata.client.providers import Providers  # imported late, because most processes read no persistent topic

    providers = Providers(client)
    named = {name: providers.named(str(name)) for name in selection.persistent}
    if all(isinstance(found, PersistentName) for found in named.values()):
        return options
    for offset in (options.start, options.end) if isinstance(options, ReadOptions) else ():
        for name, _ in offset.positions if isinstance(offset, AtLog) else ():
            if name in named and named[name] != name:
                raise OptionError(
                    f"An offset gives a position of {name}, which its namespace has made {named[name]}.",
                    advice=f'Read {named[name]} at a number of the log, {{"log": N}}.',
                )
    whole = set(named.values())
    names = (named[n] if isinstance(n, PersistentName) else n for n in selection.names)
    kept = dict.fromkeys(n for n in names if not (isinstance(n, SegmentName) and n.topic in whole))
    return replace(options, selection=Topics(tuple(kept)))
