"""Rerouting: parts whose segments were sealed after staging get active segments (protocol.md section 5, Sealing).

If one active segment takes all rows of a part, the new registration lists the part under that segment, and the file stays where it
is. Otherwise the topic has a key and the segment was split. Then the part is rewritten, and memory holds one entry for each child.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ledgers.model import Part
from ledgers.parts import PartWriter, close_all, read_part
from ledgers.storage import LedgerStorage
from metadata.common.tracing import traced
from metadata.records.folders import folder_of
from metadata.records.names import SegmentName, segment_name
from metadata.topics.routing import Router, Target

Written = Callable[[Part, str, str, Sequence[Target]], "list[tuple[str, Part]]"]
"""A function that rewrites a part. It takes the part, its segment, the key column and the active segments. It returns (segment, new
part) for each segment that gets rows.
"""


@dataclass(frozen=True)
class Rewriting:
    """Rewrites parts. `unique`: returns a new unique name or staging id. `statistics`: whether the new parts get statistics."""

    storage: LedgerStorage
    unique: Callable[[], str]
    statistics: bool = True

    @traced("upload")
    def __call__(self, part: Part, segment: str, key: str, to: Sequence[Target]) -> list[tuple[str, Part]]:
        """Write the rows of a part into new parts, routed by their key. The rows of each segment keep their order. Raises
        CorruptPart, StorageError, OptionError.
        """
        staging_id = self.unique()
        writers: dict[str, PartWriter] = {}
        router: Router | None = None
        try:
            for found in read_part(self.storage, part, where=segment):
                if router is None:
                    router = Router(to, key, found.batch.schema)
                for target, rows in router.route(found.batch):
                    if target not in writers:
                        writers[target] = self._writer(target, part, rows.schema, staging_id, key)
                    writers[target].write(rows)
            closed = list(zip(writers, close_all(list(writers.values())), strict=True))
        except BaseException:
            for writer in writers.values():
                writer.discard()
            raise
        return [(target, made) for target, made in closed if made is not None]

    def _writer(self, segment: str, part: Part, schema: pa.Schema, staging_id: str, key: str) -> PartWriter:
        return PartWriter(
            self.storage,
            folder_of(segment),
            schema,
            part.schema,
            staging_id=staging_id,
            name_source=self.unique,
            key=key,
            statistics=self.statistics,
        )


def rerouted(parts: Mapping[str, Sequence[Part]], to: Sequence[Target], key: str | None, rewrite: Written) -> dict[str, list[Part]]:
    """Return the parts of one topic by active segment. `to`: the active segments. The rows of a key keep their order, because the
    parts of a segment come before the parts of its children. (A child has a higher id than its parents.)
    """
    active = {target.segment for target in to}
    found: dict[str, list[Part]] = {}
    for segment, staged in sorted(parts.items(), key=lambda item: segment_name(item[0]).segment_id):
        heirs = [target for target in to if _overlap(segment_name(segment), target)]
        if segment in active:
            found.setdefault(segment, []).extend(staged)
        elif key is None or len(heirs) == 1:
            found.setdefault(heirs[0].segment, []).extend(staged)
        else:
            for part in staged:
                for target, made in rewrite(part, segment, key, to):
                    found.setdefault(target, []).append(made)
    return found


def _overlap(sealed: SegmentName, target: Target) -> bool:
    return sealed.hash_range.start <= target.hash_range.end and target.hash_range.start <= sealed.hash_range.end
