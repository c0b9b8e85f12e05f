"""Copied or moved stores. Exactly one copy owns the ledger root, and only the owner deletes files in it."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from conformance.simulator.store.clock import SimulatedClock
from ledgers.storage import LedgerStorage
from metadata.backup.restore import Restoration
from metadata.client.passes import delete_orphans
from metadata.cluster import cluster as metadata_cluster
from metadata.cluster import ledger_root
from metadata.cluster.cluster import open_cluster, take_over
from metadata.cluster.ledger_root import MARK, read_mark
from metadata.cluster.places import Place, same_place
from metadata.common.clock import Clock, SystemClock
from metadata.common.errors import ConfigurationError, RestoreRefused, StorageError, TxnSegmentError
from metadata.maintenance import orphans as orphans_module
from metadata.maintenance.deleting import BATCH
from metadata.records import paths
from metadata.records.cluster_records import ClusterRecord, Restoring
from metadata.records.json_records import JsonRecord
from metadata.store import open_store
from metadata.store.contract import ABSENT, MetadataStore, look
from txnsegment import Cluster, connect, restore
from txnsegment.cli.app import build
from txnsegment.verify import verify

WAYS_TO_COPY: dict[str, Callable[[Path, Path], object]] = {
    "cp -r": lambda one, other: shutil.copytree(one, other, symlinks=True),
    "copy of a copy": lambda one, other: (
        shutil.copytree(one, other.with_name("between")),
        shutil.copytree(other.with_name("between"), other),
    ),
    "mv and copied back": lambda one, other: (one.rename(other), shutil.copytree(other, one)),
}


def write(cluster: Cluster, *numbers: int) -> None:
    with cluster.begin() as txn:
        txn.append("t", pa.table({"n": pa.array(numbers, pa.int64())}))
        txn.commit()


def rows(url: str | Cluster) -> list[int]:
    """Return the rows that a new reader gets. Check that no file of the topic is missing or damaged."""
    cluster = connect(url) if isinstance(url, str) else url
    try:
        with cluster.consumer("t", "reading", start="earliest") as consumer:
            consumer.rewind()
            found = sorted(message.value["n"] for message in consumer.messages(timeout=0.0))
        cluster.subscriptions.delete("t", "reading")
        assert not verify(cluster.client, "t").damaged
        return found
    finally:
        if isinstance(url, str):
            cluster.close()


def make(folder: Path, ledgers: Path | None = None) -> str:
    url = f"file://{folder}"
    with connect(url, ledgers=None if ledgers is None else str(ledgers)) as cluster:
        cluster.topics.create("t", schema="n bigint")
        write(cluster, 1, 2)
    return url


def age(*roots: Path) -> None:
    """Set the times of all files back, beyond the orphan age."""
    for root in roots:
        for path in root.rglob("*"):
            if path.is_file():
                os.utime(path, (1, 1))


def change(url: str, key: paths.Key, kind: type[JsonRecord], **fields: object) -> None:
    with open_store(url) as store:
        record = look(store, key)
        assert record is not None
        store.put(key, kind.of(record).model_copy(update=fields).to_bytes(), expect=record)


def by_an_older_version(url: str, root: Path) -> None:
    """Change the cluster record and the mark to the form that versions before format 2 wrote."""
    change(url, paths.CLUSTER, ClusterRecord, ledgers=f"file://{root}", format_version=1, owner=None)
    mark = read_mark(LedgerStorage(str(root)))
    assert mark is not None
    (root / MARK).write_text(f'{{"cluster": "{mark.cluster}"}}')


def refused(url: str, match: str = "store") -> None:
    with pytest.raises(ConfigurationError, match=match):
        connect(url)


@pytest.mark.parametrize("older", [False, True], ids=["", "of an older version"])
@pytest.mark.parametrize("way", WAYS_TO_COPY)
def test_a_copied_folder_is_a_cluster_of_its_own(tmp_path: Path, way: str, older: bool) -> None:
    prod, copy = tmp_path / "prod", tmp_path / "copy"
    url = make(prod)
    if older:
        by_an_older_version(url, prod / "ledgers")
    WAYS_TO_COPY[way](prod, copy)
    with connect(url) as one, connect(f"file://{copy}") as other:
        assert other.ledgers == f"file://{copy}/ledgers"
        for n in range(10, 40, 2):
            write(one, n)
            write(other, n + 1)
        for _ in range(3):
            age(prod, copy)
            one.sweep()
            other.sweep()
            one.compact("t")
            other.compact("t")
        assert rows(one) == [1, 2, *range(10, 40, 2)]
        assert rows(other) == [1, 2, *range(11, 41, 2)]
        other.topics.delete("t")
        for _ in range(3):
            age(copy)
            other.sweep()
    assert rows(url) == [1, 2, *range(10, 40, 2)]


@pytest.mark.parametrize("older", [False, True], ids=["", "of an older version"])
def test_a_moved_folder_works_at_its_new_place(tmp_path: Path, older: bool) -> None:
    url = make(tmp_path / "a")
    if older:
        by_an_older_version(url, tmp_path / "a" / "ledgers")
    (tmp_path / "a").rename(tmp_path / "b")
    assert rows(f"file://{tmp_path}/b") == [1, 2]
    (tmp_path / "c").symlink_to(tmp_path / "b")
    assert rows(f"file://{tmp_path}/c") == [1, 2]
    assert rows(make(tmp_path / "a")) == [1, 2], "a new cluster can use the old place"


def test_a_copy_made_while_a_writer_runs_never_touches_the_original(tmp_path: Path) -> None:
    prod, done, written = tmp_path / "prod", threading.Event(), [1, 2]
    url = make(prod)

    def writes() -> None:
        with connect(url) as cluster:
            for n in range(3, 200):
                write(cluster, n)
                written.append(n)
                if done.is_set():
                    return

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(writes)
        for copy in range(3):
            try:
                shutil.copytree(prod, tmp_path / f"copy{copy}")
            except shutil.Error:
                continue  # a temporary file was deleted during the copy, so the copy is incomplete; it is opened below as well
        done.set()
        writer.result()
    age(prod)
    for copy in range(3):
        age(tmp_path / f"copy{copy}")
        try:
            with connect(f"file://{tmp_path}/copy{copy}") as cluster:
                assert cluster.ledgers == f"file://{tmp_path}/copy{copy}/ledgers"
                cluster.sweep()
        except TxnSegmentError:
            continue  # an incomplete copy may fail, but only with an error of the package
    assert rows(url) == written


@pytest.fixture(params=["external root", "symlinked root", "copied without its root"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str, Path]:
    """Make a store, and a copy of it with the same ledger root. Return both URLs and the root."""
    prod, copy = tmp_path / "prod", tmp_path / "copy"
    match request.param:
        case "external root":
            root = tmp_path / "root"
            url = make(prod, root)
            shutil.copytree(prod, copy)
        case "symlinked root":
            root = tmp_path / "big"
            prod.mkdir()
            root.mkdir()
            (prod / "ledgers").symlink_to(root)
            url = make(prod)
            shutil.copytree(prod, copy, symlinks=True)
        case _:
            root = prod / "ledgers"
            url = make(prod)
            change(url, paths.CLUSTER, ClusterRecord, ledgers=f"file://{root}", format_version=1)
            copy.mkdir()
            shutil.copy2(prod / "metadata.db", copy / "metadata.db")
    return url, f"file://{copy}", root


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_a_copy_that_shares_the_root_is_refused_with_the_take_over_command(shared: tuple[str, str, Path]) -> None:
    url, copy, root = shared
    age(root)
    before = files(root)
    for _ in range(2):
        with pytest.raises(ConfigurationError) as told:
            connect(copy)
        message = str(told.value)
        assert f"txnsegment init {copy} --take-over" in message
        assert "prod" in message
        assert "copy/metadata.db" in message
    assert files(root) == before
    with connect(url) as cluster:
        write(cluster, 3)
        cluster.sweep()
    assert rows(url) == [1, 2, 3]


def test_a_copy_that_takes_the_root_over_owns_it_and_the_previous_owner_is_refused(shared: tuple[str, str, Path]) -> None:
    url, copy, root = shared
    before = connect(url)
    write(before, 3)
    before.client.finish()
    age(root)
    assert take_over(copy)
    assert not take_over(copy), "a second take-over changes nothing"
    there = files(root)
    with pytest.raises(ConfigurationError, match="has taken it over"):
        delete_orphans(before.client.cluster)
    before.close()
    refused(url, "has taken it over")
    assert files(root) == there
    with connect(copy) as cluster:
        write(cluster, 4)
        cluster.sweep()
        assert rows(cluster) == [1, 2, 4]
    assert take_over(url)
    refused(copy, "has taken it over")
    connect(url).close()


def test_a_new_embedded_cluster_records_its_root_relative_to_its_folder(tmp_path: Path) -> None:
    """A store is copied without its ledgers. The copy looks for ledgers in its own folder, and does not open those of the
    original.
    """
    url = make(tmp_path / "prod")
    (tmp_path / "copy").mkdir()
    shutil.copy2(tmp_path / "prod" / "metadata.db", tmp_path / "copy" / "metadata.db")
    with pytest.raises(StorageError, match="copy/ledgers does not exist"):
        connect(f"file://{tmp_path}/copy")
    assert rows(url) == [1, 2]


def test_a_root_in_its_folder_that_another_store_takes_over_is_refused(tmp_path: Path) -> None:
    """The store is at the place that the mark names. Still it is refused, because its cluster record has another nonce than the
    mark.
    """
    url = make(tmp_path / "prod")
    shutil.copytree(tmp_path / "prod", tmp_path / "before")
    mark = tmp_path / "prod" / "ledgers" / MARK
    place = mark.read_bytes()
    mark.unlink()
    assert take_over(url)
    connect(url).close()
    change(url, paths.CLUSTER, ClusterRecord, owner="of another take-over")
    refused(url, "has taken it over")
    mark.write_bytes(place)
    refused(url, "has taken it over")
    assert rows(f"file://{tmp_path}/before") == [1, 2]


def test_a_take_over_whose_mark_is_replaced_meanwhile_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "prod", tmp_path / "root")
    for name in ("one", "other"):
        shutil.copytree(tmp_path / "prod", tmp_path / name)
    wait = ledger_root.wait_for_deletes

    def meanwhile(storage: LedgerStorage, clock: Clock) -> None:
        monkeypatch.setattr(ledger_root, "wait_for_deletes", wait)
        assert take_over(f"file://{tmp_path}/other")
        wait(storage, clock)

    monkeypatch.setattr(ledger_root, "wait_for_deletes", meanwhile)
    with pytest.raises(ConfigurationError, match="at the same time"):
        take_over(f"file://{tmp_path}/one")
    assert [opens(f"file://{tmp_path}/{name}") for name in ("prod", "one", "other")] == [False, False, True]


def test_the_command_takes_the_root_over(tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        done = CliRunner().invoke(build(), list(arguments))
        return f"{done.exit_code} {done.stdout}{done.stderr}"

    url, copy = make(tmp_path / "prod", tmp_path / "root"), f"file://{tmp_path}/copy"
    shutil.copytree(tmp_path / "prod", tmp_path / "copy")
    assert run("init", copy).startswith("1 ")
    assert run("init", copy, "--take-over").startswith("0 The store owns its ledgers now.\n")
    assert run("init", copy, "--take-over").startswith("0 The store owned its ledgers already.")
    assert "has taken it over" in run("--service-url", url, "topics", "list")
    assert "for an existing cluster" in run("init", copy, "--take-over", "--ledgers", "/elsewhere")
    assert "There is no" in run("init", f"file://{tmp_path}/none", "--take-over")
    assert not (tmp_path / "none").exists()


def test_a_store_that_is_moved_on_one_file_system_keeps_its_root(tmp_path: Path) -> None:
    make(tmp_path / "a", tmp_path / "root")
    (tmp_path / "a").rename(tmp_path / "b")
    assert rows(f"file://{tmp_path}/b") == [1, 2]
    mark = read_mark(LedgerStorage(str(tmp_path / "root")))
    assert mark is not None
    assert mark.place is not None
    assert mark.place.path == str(tmp_path / "b" / "metadata.db")
    shutil.copytree(tmp_path / "b", tmp_path / "a")
    refused(f"file://{tmp_path}/a", "owns it")


def test_a_file_copied_to_the_place_of_the_owner_is_refused(tmp_path: Path) -> None:
    """The owner's store was moved, and a copy was put at its old place. Both stores are refused until one of them takes the root
    over.
    """
    url = make(tmp_path / "a", tmp_path / "root")
    (tmp_path / "a").rename(tmp_path / "b")
    shutil.copytree(tmp_path / "b", tmp_path / "a")
    refused(url)
    refused(f"file://{tmp_path}/b")
    assert take_over(f"file://{tmp_path}/b")
    assert rows(f"file://{tmp_path}/b") == [1, 2]
    refused(url)


def test_a_folder_replaced_under_an_open_cluster_is_noticed_before_a_delete(tmp_path: Path) -> None:
    prod = tmp_path / "prod"
    with connect(make(prod)) as cluster:
        prod.rename(tmp_path / "moved")
        shutil.copytree(tmp_path / "moved", prod)
        orphan = prod / "ledgers/public/default/t/0000-ffff-0/x.parquet"
        orphan.parent.mkdir(parents=True, exist_ok=True)
        orphan.write_text("x")
        age(prod)
        with pytest.raises(ConfigurationError, match="was replaced"):
            delete_orphans(cluster.client.cluster)
        assert orphan.exists()


@pytest.mark.parametrize("first", ["prod", "copy"])
def test_the_first_of_two_older_copies_that_share_a_root_owns_it(tmp_path: Path, first: str) -> None:
    make(tmp_path / "prod", tmp_path / "root")
    by_an_older_version(f"file://{tmp_path}/prod", tmp_path / "root")
    shutil.copytree(tmp_path / "prod", tmp_path / "copy")
    connect(f"file://{tmp_path}/{first}").close()
    refused(f"file://{tmp_path}/{'copy' if first == 'prod' else 'prod'}", "owns it")
    connect(f"file://{tmp_path}/{first}").close()


def test_a_copy_of_an_older_version_without_ledgers_leaves_them_to_the_store_beside_them(tmp_path: Path) -> None:
    url = make(tmp_path / "prod")
    by_an_older_version(url, tmp_path / "prod" / "ledgers")
    (tmp_path / "copy").mkdir()
    shutil.copy2(tmp_path / "prod" / "metadata.db", tmp_path / "copy" / "metadata.db")
    refused(f"file://{tmp_path}/copy", "owns it")
    assert rows(url) == [1, 2]


def test_a_user_who_may_not_write_the_mark_of_an_older_version_opens_the_cluster_and_deletes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = make(tmp_path / "prod", tmp_path / "root")
    by_an_older_version(url, tmp_path / "root")

    def denied(storage: LedgerStorage, rel: str, data: bytes) -> None:
        raise ledger_root.StorageError("permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(LedgerStorage, "replace", denied)
        assert rows(url) == [1, 2]
        orphan = tmp_path / "root/public/default/t/0000-ffff-0/x.parquet"
        orphan.write_text("x")
        age(tmp_path / "root")
        with connect(url) as cluster, pytest.raises(ConfigurationError, match="does not name the place"):
            delete_orphans(cluster.client.cluster)
        assert orphan.exists()
    with connect(url) as cluster:
        assert delete_orphans(cluster.client.cluster).files == 1


class Dies(BaseException):
    pass


@pytest.mark.parametrize("step", range(4))
def test_a_take_over_that_dies_at_any_step_is_finished_by_running_it_again(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, copy = make(tmp_path / "prod", tmp_path / "root"), f"file://{tmp_path}/copy"
    shutil.copytree(tmp_path / "prod", tmp_path / "copy")
    steps: list[str] = []

    def dying(kind: type, name: str) -> None:
        inner = getattr(kind, name)

        def call(*args: object, **kwargs: object) -> object:
            before, after = f"before {name}", f"after {name}"
            steps.append(before)
            if len(steps) == step + 1:
                raise Dies
            found = inner(*args, **kwargs)
            steps.append(after)
            if len(steps) == step + 1:
                raise Dies
            return found

        patched.setattr(kind, name, call)

    with monkeypatch.context() as patched:
        dying(LedgerStorage, "replace")
        dying(MetadataStore, "put")
        with pytest.raises(Dies):
            take_over(copy)
    assert len(steps) == step + 1
    owners = [place for place in (url, copy) if opens(place)]
    assert owners == [[url], [], [], [copy]][step]
    assert take_over(copy) is (step != 3)
    assert rows(copy) == [1, 2]
    refused(url, "has taken it over")


def opens(url: str) -> bool:
    try:
        connect(url).close()
    except ConfigurationError:
        return False
    return True


def test_at_most_one_of_concurrent_take_overs_owns_the_root(tmp_path: Path) -> None:
    urls = [make(tmp_path / "prod", tmp_path / "root")]
    for n in range(3):
        shutil.copytree(tmp_path / "prod", tmp_path / f"copy{n}")
        urls.append(f"file://{tmp_path}/copy{n}")
    for _ in range(5):
        together = threading.Barrier(len(urls))

        def takes(url: str, together: threading.Barrier = together) -> bool:
            together.wait()
            try:
                return take_over(url)
            except ConfigurationError:
                return False

        with ThreadPoolExecutor(len(urls)) as pool:
            done = [url for url, taken in zip(urls, pool.map(takes, urls), strict=True) if taken]
        owners = [url for url in urls if opens(url)]
        assert len(owners) <= 1
        assert set(owners) <= {urls[0], *done}
    assert take_over(urls[2]) or opens(urls[2])
    assert [url for url in urls if opens(url)] == [urls[2]]


def orphans(root: Path, count: int) -> None:
    for n in range(count):
        path = root / f"public/default/t/0000-ffff-0/x{n}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    age(root)


@pytest.mark.parametrize("after", [0, 1, BATCH - 1, BATCH, BATCH + 1, 2 * BATCH])
def test_a_sweep_deletes_nothing_once_a_take_over_is_complete(tmp_path: Path, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A take-over begins when the sweep has deleted `after` files. The sweep deletes no file after the take-over has completed."""
    root = tmp_path / "root"
    url, copy = make(tmp_path / "prod", root), f"file://{tmp_path}/copy"
    shutil.copytree(tmp_path / "prod", tmp_path / "copy")
    orphans(root, 3 * BATCH + 1)
    delete, deleted, complete = LedgerStorage.delete, [0], threading.Event()
    marked = threading.Event()
    replace = LedgerStorage.replace

    def marks(storage: LedgerStorage, rel: str, data: bytes) -> None:
        replace(storage, rel, data)
        marked.set()

    def takes() -> None:
        assert take_over(copy)
        complete.set()

    with ThreadPoolExecutor(1) as pool, connect(url) as cluster:
        taking = []

        def deletes(storage: LedgerStorage, rel: str) -> None:
            if rel.endswith(".parquet"):
                if deleted[0] == after:
                    taking.append(pool.submit(takes))
                    assert marked.wait(60)
                assert not complete.is_set(), "a file was deleted after the take-over"
                deleted[0] += 1
            delete(storage, rel)

        monkeypatch.setattr(LedgerStorage, "delete", deletes)
        monkeypatch.setattr(LedgerStorage, "replace", marks)
        with pytest.raises(ConfigurationError, match="has taken it over"):
            delete_orphans(cluster.client.cluster)
        for one in taking:
            one.result()
    assert complete.is_set()
    assert after <= deleted[0] <= (after // BATCH + 1) * BATCH
    assert not [name for name in files(root) if "deleting" in name]


@pytest.fixture
def superseded(tmp_path: Path) -> tuple[str, Path, SimulatedClock]:
    """Make a cluster, take a backup, and delete a topic. Return the cluster's URL, the backup, and a clock whose time is so late
    that a sweep deletes the topic's files.
    """
    url = make(tmp_path / "prod", tmp_path / "root")
    with connect(url) as cluster:
        cluster.topics.create("u", schema="n bigint")
        with cluster.begin() as txn:
            txn.append("u", pa.table({"n": pa.array([1], pa.int64())}))
            txn.commit()
        cluster.sweep()
        cluster.backup(tmp_path / "backup")
        cluster.topics.delete("t")
        cluster.sweep()
    age(tmp_path / "root")
    clock = SimulatedClock()
    clock.now = SystemClock().now_ms() + 8 * 24 * 3_600_000
    return url, tmp_path / "backup", clock


def test_a_sweep_running_during_a_restore_deletes_none_of_its_files(
    tmp_path: Path, superseded: tuple[str, Path, SimulatedClock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole restore runs between the sweep's listing and its deletes. The sweep finds another owner, and deletes no file."""
    url, backup, clock = superseded
    again, seen = f"file://{tmp_path}/again", orphans_module._seen

    def meanwhile(cluster: metadata_cluster.Cluster, notes: list[str], now_ms: int) -> dict[str, int] | None:
        restore(backup, again)
        return seen(cluster, notes, now_ms)

    monkeypatch.setattr(orphans_module, "_seen", meanwhile)
    cluster = open_cluster(url, clock=clock)
    try:
        with pytest.raises(ConfigurationError, match="belongs to another cluster"):
            delete_orphans(cluster)
    finally:
        cluster.close()
    assert rows(again) == [1, 2]


def test_a_sweep_is_refused_once_a_restore_into_its_own_store_began(tmp_path: Path) -> None:
    with connect(make(tmp_path / "prod")) as cluster:
        orphans(tmp_path / "prod" / "ledgers", 1)
        begun = Restoring(backup="x", id="y", ledgers="z", began_ms=0, by="somebody")
        cluster.client.cluster.store.put(paths.RESTORING, begun.to_bytes(), expect=ABSENT)
        with pytest.raises(RestoreRefused, match="an incomplete cluster"):
            delete_orphans(cluster.client.cluster)
    assert "public/default/t/0000-ffff-0/x0.parquet" in files(tmp_path / "prod" / "ledgers")


@pytest.mark.parametrize("when", ["before the files are looked for", "before the mark", "before the claim is released"])
def test_a_restore_beside_a_sweep_has_all_files_or_names_the_missing_ones(
    tmp_path: Path, superseded: tuple[str, Path, SimulatedClock], monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """A sweep of the old cluster is tried just before the step `when` of the restore. The sweep deletes a file of the backup, so
    the restore is refused. At the last step the old cluster can no longer be opened, so it is not swept, and the restore has all
    rows.
    """
    url, backup, clock = superseded
    step = {
        "before the files are looked for": "_check_files",
        "before the mark": "_take_over",
        "before the claim is released": "_release",
    }[when]
    inner, swept = getattr(Restoration, step), []

    def stepping(self: Restoration, *args: object, **kwargs: object) -> object:
        if not swept:
            swept.append(True)
            try:
                cluster = open_cluster(url, clock=clock)
            except ConfigurationError:
                pass
            else:
                swept.append(delete_orphans(cluster).files > 0)
                cluster.close()
        return inner(self, *args, **kwargs)

    monkeypatch.setattr(Restoration, step, stepping)
    if when == "before the claim is released":
        restore(backup, f"file://{tmp_path}/again")
        assert rows(f"file://{tmp_path}/again") == [1, 2]
        assert swept == [True], "the old cluster could not be opened any more"
        return
    with pytest.raises(RestoreRefused, match="1 are missing") as told:
        restore(backup, f"file://{tmp_path}/again")
    assert swept == [True, True]
    if when == "before the mark":
        assert "is not complete" in str(told.value)
        refused(f"file://{tmp_path}/again", "an incomplete cluster")
    else:
        assert "Nothing was changed" in str(told.value)


def test_a_take_over_waits_for_a_sweep_that_died_for_a_bounded_time(tmp_path: Path) -> None:
    make(tmp_path / "prod", tmp_path / "root")
    shutil.copytree(tmp_path / "prod", tmp_path / "copy")
    LedgerStorage(str(tmp_path / "root")).publish("sweep/deleting-dead", b"dead")
    clock = SimulatedClock()
    began = clock.now
    assert take_over(f"file://{tmp_path}/copy", clock=clock)
    assert 30_000 <= clock.now - began < 31_000
    assert not list((tmp_path / "root" / "sweep").iterdir())


def test_a_slow_batch_of_deletes_ends_after_its_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of deletes has a time limit, so that slow deletes do not lengthen the time between two checks of the owner."""
    root = tmp_path / "root"
    url = make(tmp_path / "prod", root)
    orphans(root, 20)
    clock = SimulatedClock()
    checked: list[int] = []
    check = ledger_root.check
    monkeypatch.setattr(ledger_root, "check", lambda *args: (checked.append(clock.now), check(*args))[1])
    delete = LedgerStorage.delete

    since: list[int] = []

    def slow(storage: LedgerStorage, rel: str) -> None:
        since.append(clock.now - checked[-1])
        clock.sleep(1.0)
        delete(storage, rel)

    monkeypatch.setattr(LedgerStorage, "delete", slow)
    cluster = open_cluster(url, clock=clock)
    try:
        clock.now += 1_000_000_000_000
        assert delete_orphans(cluster).files == 20
    finally:
        cluster.close()
    assert len(since) > 20
    assert max(since[:-1]) < 5_000  # the last delete does not count, because it removes the sweep's own note


def test_a_take_over_of_a_root_that_is_not_this_clusters_is_refused(tmp_path: Path) -> None:
    one, other = make(tmp_path / "one"), make(tmp_path / "other")
    shutil.copy2(tmp_path / "other" / "ledgers" / MARK, tmp_path / "one" / "ledgers" / MARK)
    with pytest.raises(ConfigurationError, match="belongs to another cluster"):
        take_over(one)
    assert rows(other) == [1, 2]
    shutil.rmtree(tmp_path / "one" / "ledgers")
    (tmp_path / "one" / "ledgers").mkdir()
    with pytest.raises(ConfigurationError, match="is empty"):
        take_over(one)


def test_a_take_over_restores_a_lost_root_mark(tmp_path: Path) -> None:
    url = make(tmp_path / "one")
    (tmp_path / "one" / "ledgers" / MARK).unlink()
    refused(url, "--take-over")
    assert take_over(url)
    assert rows(url) == [1, 2]


FILE = Place(path="/a/metadata.db", inode=7, device=3, machine="m")
ZK = Place(hosts=("zk1.invalid:2181", "zk2.invalid:2181"), chroot="/x")
LOCAL = Place(hosts=("localhost:2181",), chroot="", machine="m")


@pytest.mark.parametrize(
    ("marked", "ours", "same"),
    [
        (FILE, FILE, True),
        (FILE, FILE.model_copy(update={"device": 4}), True),
        (FILE, FILE.model_copy(update={"path": "/b/metadata.db"}), True),
        (FILE, FILE.model_copy(update={"path": "/b/metadata.db", "device": 4}), False),
        (FILE, FILE.model_copy(update={"inode": 8}), False),
        (FILE, FILE.model_copy(update={"machine": "n"}), False),
        (FILE, FILE.model_copy(update={"machine": None}), True),
        (FILE.model_copy(update={"path": "/"}), FILE, False),
        (FILE, FILE.model_copy(update={"within": ".."}), True),
        (FILE, ZK, False),
        (Place(within=".."), FILE, False),
        (Place(within=".."), FILE.model_copy(update={"within": ".."}), True),
        (Place(within=".."), FILE.model_copy(update={"within": "../.."}), False),
        (ZK, ZK.model_copy(update={"hosts": ("zk2.invalid:2181", "zk3.invalid:2181")}), True),
        (ZK, ZK.model_copy(update={"hosts": ("zk3.invalid:2181",)}), False),
        (ZK, ZK.model_copy(update={"hosts": ("zk1.invalid:2182",)}), False),
        (ZK, ZK.model_copy(update={"chroot": "/y"}), False),
        (ZK, FILE, False),
        (LOCAL, LOCAL, True),
        (LOCAL, LOCAL.model_copy(update={"hosts": ("127.0.0.1:2181",)}), True),
        (LOCAL, LOCAL.model_copy(update={"hosts": ("127.0.0.1:2181",), "machine": "n"}), False),
        (LOCAL, LOCAL.model_copy(update={"machine": "n"}), False),
        (LOCAL, LOCAL.model_copy(update={"hosts": ("localhost:2182",)}), False),
        (Place(url="other://a"), Place(url="other://a"), True),
        (Place(url="other://a"), Place(url="other://b"), False),
        (Place(), Place(), False),
    ],
)
def test_the_place_of_a_store_is_compared_with_its_mark(marked: Place, ours: Place, same: bool) -> None:
    assert same_place(marked, ours) is same
