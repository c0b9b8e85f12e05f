"""One Spark transaction never writes to topics of both models: the second write is refused before it stages a row."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgers.storage import LedgerStorage
from metadata.common.errors import OptionError
from metadata.write.staging_manifests import StagingArea

ONE, OTHER = "topic://public/default/t", "persistent://public/default/x"


@pytest.mark.parametrize(("first", "second"), [(ONE, OTHER), (OTHER, ONE)])
def test_a_write_of_the_other_model_is_refused(tmp_path: Path, first: str, second: str) -> None:
    area = StagingArea(LedgerStorage(f"file://{tmp_path}"), "token")
    area.open()
    assert area.begin("w1", first) == 0
    with pytest.raises(OptionError, match="one transaction never spans both"):
        area.begin("w2", second)
    assert area.begin("w3", first) == 2
    with pytest.raises(OptionError, match="one transaction never spans both"):
        area.begin("w4", second)


def test_a_refused_write_leaves_no_pending_write(tmp_path: Path) -> None:
    area = StagingArea(LedgerStorage(f"file://{tmp_path}"), "token")
    area.open()
    area.begin("w1", ONE)
    with pytest.raises(OptionError):
        area.begin("w2", OTHER)
    area.withdraw("w1")
    area.close()
    assert area.collect() == []
