"""Stored records contain the folders of files. So the folder of each segment and topic must be the same in all versions."""

from __future__ import annotations

import pytest

from metadata.common.errors import OptionError
from metadata.records.folders import folder_of


def test_each_segment_and_each_persistent_topic_has_a_folder_of_its_own() -> None:
    assert folder_of("segment://t/n/orders/0000-7fff-3") == "t/n/orders/0000-7fff-3"
    assert folder_of("persistent://t/n/orders") == "t/n/orders/persistent"
    odd = folder_of("segment://t/n/a=b/0000-ffff-0")
    assert odd.startswith("t/n/")
    assert "=" not in odd
    assert odd.endswith("/0000-ffff-0")


@pytest.mark.parametrize("name", ["topic://t/n/orders", "segment://t/n/orders", "persistent://t/n"])
def test_other_names_have_no_folder(name: str) -> None:
    with pytest.raises(OptionError):
        folder_of(name)
