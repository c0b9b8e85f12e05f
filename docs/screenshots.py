"""Takes the screenshots of docs/ui.md: `make screenshots`. A live cluster is written to, split and read for some seconds, and a
real Chromium opens the page of `txnsegment ui`.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.browser import browser
from txnsegment import Cluster, connect

IMAGES = Path(__file__).parent / "images"
MOST_BYTES = 300_000
SECONDS = 45
"""How long the cluster is written to before the pictures are taken."""

SHOTS = (
    ("ui-overview.png", "/", "light"),
    ("ui-topic.png", "/topic?name=topic%3A%2F%2Fshop%2Fsales%2Forders", "light"),
    ("ui-transactions.png", "/transactions", "dark"),
    ("ui-drivers.png", "/drivers", "light"),
)


def rows(count: int, chance: random.Random) -> pa.Table:
    names = [f"customer {chance.randrange(500)}" for _ in range(count)]
    return pa.table({"customer": names, "amount": [round(chance.uniform(1, 90), 2) for _ in names]})


def write(url: str, stop: threading.Event) -> None:
    """Commit rows to several topics until `stop` is set, more and fewer in turn, and abort now and then."""
    chance = random.Random(7)
    with connect(url) as cluster, cluster.consumer("topic://shop/sales/payments", "accounting", start="earliest") as consumer:
        number = 0
        while not stop.is_set():
            number += 1
            busy = 200 + 180 * ((number // 15) % 3)
            with cluster.begin(app="shop", version=number) as txn:
                txn.append("topic://shop/sales/orders", rows(busy, chance))
                if number % 3 == 0:
                    txn.append("topic://shop/sales/payments", rows(40, chance))
                if number % 29:
                    txn.commit()
                else:
                    txn.abort()
            if number % 5 == 0:
                for message in consumer.messages(timeout=0):
                    consumer.ack(message)
            stop.wait(0.25)


def prepare(cluster: Cluster) -> None:
    schema = "customer string, amount double"
    cluster.topics.create("topic://shop/sales/orders", segments=4, key="customer", schema=schema)
    cluster.topics.create("topic://shop/sales/payments", segments=2, key="customer", schema=schema)
    cluster.topics.create("topic://shop/sales/returns", key="customer", schema=schema)
    for name in ("billing", "warehouse"):
        cluster.subscriptions.create("topic://shop/sales/orders", name)
    cluster.topics.split("topic://shop/sales/orders", 0)
    cluster.topics.split("topic://shop/sales/orders", 2)


def open_transaction(url: str) -> subprocess.Popen[str]:
    """Start a program that opens a transaction, registers rows of `returns`, and hangs. It is ended by its id."""
    code = (
        "import sys, time, pyarrow as pa\n"
        "from txnsegment import connect\n"
        "from metadata.write import coordinator\n"
        "def hangs(*_, **__):\n"
        "    print('open', flush=True); time.sleep(3600)\n"
        "coordinator.ending.end = hangs\n"
        "cluster = connect(sys.argv[1])\n"
        "txn = cluster.begin(app='refunds', version=1, timeout=240)\n"
        "txn.append('topic://shop/sales/returns', pa.table({'customer': ['ann'], 'amount': [7.0]}))\n"
        "txn.commit()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, url], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


def shoot(chrome: Any, address: str) -> None:
    for name, path, scheme in SHOTS:
        context = chrome.new_context(color_scheme=scheme, viewport={"width": 1180, "height": 820})
        tab = context.new_page()
        tab.goto(address + path)
        tab.locator("main table").first.wait_for(timeout=30_000)
        tab.screenshot(path=str(IMAGES / name))
        context.close()
        taken = (IMAGES / name).stat().st_size
        assert taken < MOST_BYTES, f"{name} has {taken} bytes"
        print(f"{IMAGES / name}: {taken} bytes")  # noqa: T201


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    started: list[subprocess.Popen[str]] = []
    with tempfile.TemporaryDirectory(prefix="txnsegment-", dir="/tmp") as folder:
        url, stop = f"file://{folder}/shop", threading.Event()
        with connect(url) as cluster:
            prepare(cluster)
        writer = threading.Thread(target=write, args=(url, stop))
        try:
            page = [sys.executable, "-c", "from txnsegment.cli.main import main; main()", "ui", "--port", "0", "--service-url", url]
            started.append(subprocess.Popen(page, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}))
            assert started[0].stdout is not None
            address = next(word for word in started[0].stdout.readline().split() if word.startswith("http://")).rstrip("/")
            writer.start()
            time.sleep(SECONDS / 2)
            with connect(url) as cluster:
                first = next(s.id for s in cluster.topics.describe("topic://shop/sales/orders").segments if s.sealed_ms is None)
                cluster.topics.split("topic://shop/sales/orders", first)
            started.append(open_transaction(url))
            time.sleep(SECONDS / 2)
            with browser() as chrome:
                shoot(chrome, address)
        finally:
            stop.set()
            if writer.ident is not None:
                writer.join()
            for process in reversed(started):
                process.terminate()
                process.wait()


if __name__ == "__main__":
    main()
