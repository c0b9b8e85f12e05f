"""`connect` and `doctor` recognise a Pulsar cluster by its URL as Spark's reads and writes do."""

from __future__ import annotations

import pytest

from metadata.common.service import VARIABLE, text_given
from pulsar_protocol.schemes import is_pulsar
from tests.support.fake_broker import FakeBroker
from txnsegment import connect
from txnsegment.doctor import examine
from txnsegment.findings import Health


@pytest.mark.parametrize("shape", ["  pulsar://{}", "PULSAR://{} "])
def test_a_url_in_capitals_or_with_spaces_is_one_of_pulsar(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeBroker() as broker:
        monkeypatch.setenv(VARIABLE, shape.format(broker.hosts))
        assert is_pulsar(text_given({}))
        with connect() as cluster:
            assert cluster.url == shape.format(broker.hosts).strip()
        found = next(one for one in examine(None) if one.check == "connection")
        assert found.health is Health.OK
