"""The page in a real headless browser, beside a real cluster (`make browser`)."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from metadata.log import ending
from metadata.records import paths
from metadata.records.names import topic_name
from metadata.records.records import State
from metadata.store.contract import ABSENT, MetadataStore, Record, decide, look
from tests.support.browser import browser
from tests.txnsegment.cli.test_cli import undecided
from tests.txnsegment.look.test_look_reading import make
from tests.txnsegment.ui.test_ui_pages import HOSTILE
from tests.txnsegment.ui.test_ui_server import TOKEN, page_of
from txnsegment import Cluster, connect

pytestmark = pytest.mark.browser

SOON = 30_000
"""How long, in ms, a test waits for what the page shows by itself."""


@pytest.fixture(scope="module")
def chrome() -> Iterator[Any]:
    with browser() as opened:
        yield opened


@pytest.fixture
def tab(chrome: Any) -> Iterator[Any]:
    """A tab whose scripts and loads must not fail. `tab.troubles` has what went wrong."""
    context = chrome.new_context(viewport={"width": 1280, "height": 900})
    page, troubles = context.new_page(), list[str]()
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda message: troubles.append(message.text) if message.type in ("error", "warning") else None)
    page.on("dialog", lambda dialog: (troubles.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.troubles = troubles
    yield page
    context.close()


def see(tab: Any, selector: str, text: str) -> None:
    """Wait until an element shows a text, without loading the page again."""
    tab.locator(selector).filter(has_text=text).first.wait_for(timeout=SOON)


def test_a_transaction_opens_commits_and_appears(tab: Any, cluster: Cluster, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real transaction is held just before the CAS that decides it. The page shows it open, and then committed, with its rows."""
    make(cluster)
    decide_now, end = threading.Event(), ending.end

    def held(store: MetadataStore, record: Record, decision: State, **more: Any) -> Any:
        assert decide_now.wait(60)
        return end(store, record, decision, **more)

    def commit() -> None:
        with cluster.begin(app="loader", version=7) as txn:
            txn.append("t", pa.table({"k": ["a", "b"], "n": [1, 2]}))
            txn.commit()

    monkeypatch.setattr(ending, "end", held)
    with page_of(url) as served, ThreadPoolExecutor(1) as pool:
        tab.goto(f"{served.address}/transactions")
        see(tab, "main", "No transaction is open.")
        tab.evaluate("window.mark = 'the page was not loaded again'")
        try:
            committing = pool.submit(commit)
            see(tab, "#open-transactions", "loader")
            (txn,) = cluster.transactions.list("OPEN")
            see(tab, f"#open-transactions tr:has-text('{txn.id}')", "OPEN")
            assert tab.locator("#ended-transactions").count() == 0
        finally:
            decide_now.set()
        committing.result(60)
        see(tab, f"#ended-transactions tr:has-text('{txn.id}')", "COMMITTED")
        see(tab, "main", "No transaction is open.")
        assert tab.evaluate("window.mark") == "the page was not loaded again"
        tab.get_by_role("link", name="Overview").click()
        see(tab, "#committed .value", "1")
        see(tab, "#rows .value", "2")
        see(tab, "#open .value", "0")
        assert tab.troubles == []


def test_readers_that_wait_are_told_for_which_transaction(tab: Any, cluster: Cluster, url: str) -> None:
    make(cluster)
    number = undecided(cluster, "0_9999", deadline_in_ms=600_000)
    with page_of(url) as served:
        tab.goto(f"{served.address}/topic?name=topic://public/default/t")
        see(tab, "p.warn", f"Readers get no row above number {number - 1}")
        see(tab, "p.warn", "0_9999")
        cluster.transactions.abort("0_9999")
        tab.locator("p.warn").wait_for(timeout=SOON, state="detached")
        tab.goto(f"{served.address}/transactions?state=ABORTED")
        see(tab, "#ended-transactions tr:has-text('0_9999')", "ABORTED")
        assert tab.troubles == []


def test_a_topic_is_drawn_and_redrawn_when_it_splits(tab: Any, cluster: Cluster, url: str) -> None:
    make(cluster)
    with page_of(url) as served:
        tab.goto(served.address)
        tab.get_by_role("link", name="topic://public/default/t").click(timeout=SOON)
        tab.wait_for_url(re.compile("/topic"))
        tab.locator("#segments rect").nth(1).wait_for(timeout=SOON)
        assert tab.locator("#segments rect").count() == 2
        cluster.topics.split("t", 0)
        tab.locator("#segments rect").nth(3).wait_for(timeout=SOON)
        assert tab.locator("#segments line").count() == 2
        assert tab.locator("#segments rect").first.bounding_box()["width"] > 100
        assert tab.troubles == []


def test_hostile_names_are_shown_as_text(tab: Any, url: str) -> None:
    with connect(url) as cluster:
        make(cluster)
        store = cluster.client.cluster.store
        record = look(store, paths.topic(topic_name("t")))
        assert record is not None
        name = topic_name("topic://public/default/" + HOSTILE.replace("/", "|").replace(" ", "_"))  # an earlier version took it
        decide(store, lambda view: store.put(paths.topic(name), record.value, expect=ABSENT))
    with page_of(url) as served:
        tab.goto(served.address)
        link = tab.get_by_role("link", name=re.compile("<script>alert"))
        link.wait_for(timeout=SOON)
        link.click()
        see(tab, "h1", "<script>alert(1)")
        tab.locator("#segments svg").wait_for(timeout=SOON)
        assert tab.locator("img").count() == 0
        assert tab.troubles == []


def test_the_token_lets_a_browser_in(tab: Any, url: str) -> None:
    connect(url).close()
    with page_of(url, TXNSEGMENT_UI_TOKEN=TOKEN) as served:
        tab.goto(f"{served.address}/storage")
        tab.get_by_label("Token").fill("wrong-but-long-enough")
        tab.get_by_role("button", name="Look").click()
        see(tab, "[role=alert]", "This is not the token.")
        tab.get_by_label("Token").fill(TOKEN)
        tab.get_by_role("button", name="Look").click()
        see(tab, "h1", url)
        assert TOKEN not in tab.url


def test_the_page_says_when_its_server_is_gone(tab: Any, url: str) -> None:
    connect(url).close()
    with page_of(url) as served:
        tab.goto(served.address)
        see(tab, "h1", url)
        served.process.terminate()
        assert served.process.wait(timeout=30) == 0
        tab.locator("#lost").wait_for(timeout=SOON, state="visible")
        see(tab, "h1", url)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_light_and_on_dark_pages(chrome: Any, cluster: Cluster, url: str, scheme: str) -> None:
    make(cluster)
    with page_of(url) as served:
        context = chrome.new_context(color_scheme=scheme, viewport={"width": 400, "height": 800})
        tab = context.new_page()
        tab.goto(served.address)
        see(tab, "table", "topic://public/default/t")
        colours = "getComputedStyle(document.body)"
        brightness = [
            sum(map(int, re.findall(r"\d+", tab.evaluate(f"{colours}.{name}"))[:3])) / 3 for name in ("color", "backgroundColor")
        ]
        assert abs(brightness[0] - brightness[1]) > 120
        assert (brightness[1] < 128) == (scheme == "dark")
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")  # a phone scrolls tables, not the page
        context.close()
