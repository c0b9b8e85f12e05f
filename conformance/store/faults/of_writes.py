"""Faults of versions, writes, groups and values."""

from __future__ import annotations

import time
from collections import Counter
from typing import ClassVar

from conformance.store.faults.planting import Sound, planted
from metadata.common.errors import BadVersion, Unavailable, ValueTooLarge
from metadata.store.contract import ABSENT, ANY, Append, Delete, Put, Record, Write, expected_version


@planted("records/a-record-that-moved-on")
class VersionIgnored(Sound):
    """A put or delete takes effect whatever version it expects, unless it expects absence."""

    def write(self, *writes: Write) -> list[Record | None]:
        return self.store.write(
            *(w._replace(expect=ANY) if isinstance(w, Put | Delete) and expected_version(w.expect) != ABSENT else w for w in writes)
        )


@planted("records/a-record-that-has-its-old-value-again")
class ValuesAreCompared(Sound):
    """A put or delete that expects a record compares the value of that record, not the version."""

    def write(self, *writes: Write) -> list[Record | None]:
        return self.store.write(*(self._with_newest(write) for write in writes))

    def _with_newest(self, write: Write) -> Write:
        if isinstance(write, Append) or not isinstance(write.expect, Record):
            return write
        now = self.store.view().get(write.key)
        return write._replace(expect=now) if now is not None and now.value == write.expect.value else write


@planted("records/a-put-that-expects-nothing-meets-a-record")
class AbsenceIgnored(Sound):
    """A put that expects absence replaces an existing record."""

    def write(self, *writes: Write) -> list[Record | None]:
        return self.store.write(
            *(w._replace(expect=ANY) if isinstance(w, Put) and expected_version(w.expect) == ABSENT else w for w in writes)
        )


@planted("records/a-delete-that-expects-nothing-meets-a-record")
class DeleteOfNothingSucceeds(Sound):
    """A delete that expects absence succeeds without a check, even if the record exists."""

    def write(self, *writes: Write) -> list[Record | None]:
        kept = [w for w in writes if not (isinstance(w, Delete) and w.expect == ABSENT)]
        return self.store.write(*kept) if len(kept) == len(writes) else [*self.store.write(*kept), None]


@planted("records/a-record-that-moved-on")
class LostRaceIsSilent(Sound):
    """A write that lost its race returns the existing record, as if it had won."""

    def write(self, *writes: Write) -> list[Record | None]:
        try:
            return self.store.write(*writes)
        except BadVersion:
            return [None if isinstance(w, Append) else self.store.view().get(w.key) for w in writes]


@planted("races/exactly-one-creates")
class CheckThenAct(Sound):
    """A put compares the version first and writes the record later, so two puts can both win."""

    def write(self, *writes: Write) -> list[Record | None]:
        unchecked: list[Write] = []
        for write in writes:
            if isinstance(write, Put):
                found = self.store.view().get(write.key)
                expected = expected_version(write.expect)
                if expected is not None and expected != (found.version if found else ABSENT):
                    raise BadVersion(f"{write.key.path} has another version.")
                unchecked.append(write._replace(expect=ANY))
            else:
                unchecked.append(write)
        time.sleep(0.002)
        return self.store.write(*unchecked)


@planted("records/versions-count-puts-and-restart-with-the-key")
class PutsAreRepeated(Sound):
    """An unconditional put is sent twice, as by a client that sends a request again after a timeout (A26)."""

    def write(self, *writes: Write) -> list[Record | None]:
        found = self.store.write(*writes)
        again = len(writes) == 1 and isinstance(writes[0], Put) and writes[0].expect is ANY
        return self.store.write(*writes) if again else found


@planted("indexes/an-append-may-have-entries")
class AppendsAreRepeated(Sound):
    """An append is sent twice, as by a client that sends a request again after a timeout (A26)."""

    def write(self, *writes: Write) -> list[Record | None]:
        if len(writes) == 1 and isinstance(writes[0], Append):
            self.store.write(*writes)
        return self.store.write(*writes)


@planted("histories/threads")
class AcknowledgedNotDone(Sound):
    """Every tenth unconditional put is acknowledged, but has no effect."""

    calls: ClassVar[Counter[str]] = Counter()

    def write(self, *writes: Write) -> list[Record | None]:
        if len(writes) == 1 and isinstance(put := writes[0], Put) and put.expect is ANY:
            self.calls["put"] += 1
            if self.calls["put"] % 10 == 0:
                found = self.store.view().get(put.key)
                return [Record(put.key, put.value, found.version + 1 if found else 0, put.indexes)]
        return self.store.write(*writes)


@planted("histories/threads")
class DoneNotAcknowledged(Sound):
    """Every twentieth write takes effect but raises Unavailable, which promises that the write did not take effect (A18)."""

    calls: ClassVar[Counter[str]] = Counter()

    def write(self, *writes: Write) -> list[Record | None]:
        done = self.store.write(*writes)
        self.calls["write"] += 1
        if self.calls["write"] % 20 == 0:
            raise Unavailable("The server is busy.")
        return done


@planted("groups/or-nothing-of-it")
class HalfAGroup(Sound):
    """The writes of a group take effect one by one until one fails; the writes before it stay."""

    def write(self, *writes: Write) -> list[Record | None]:
        return [record for write in writes for record in self.store.write(write)]


@planted("records/the-longest-value-fits-and-a-longer-one-is-refused")
class LongValuesAreCut(Sound):
    """A value is cut off after 512 KiB."""

    def write(self, *writes: Write) -> list[Record | None]:
        return self.store.write(*(w if isinstance(w, Delete) else w._replace(value=w.value[: 512 * 1024]) for w in writes))


@planted("records/the-longest-value-fits-and-a-longer-one-is-refused")
class TooLongIsDropped(Sound):
    """A write of a value beyond the limit has no effect and raises no error (A20)."""

    def write(self, *writes: Write) -> list[Record | None]:
        try:
            return self.store.write(*writes)
        except ValueTooLarge:
            return [Record(w.prefix.key(1) if isinstance(w, Append) else w.key, b"x", 0) for w in writes]


@planted("records/any-bytes-survive")
class ValuesAreText(Sound):
    """Values are stored as UTF-8 text, so other bytes are replaced."""

    def write(self, *writes: Write) -> list[Record | None]:
        as_text = (w if isinstance(w, Delete) else w._replace(value=w.value.decode(errors="replace").encode()) for w in writes)
        return self.store.write(*as_text)
