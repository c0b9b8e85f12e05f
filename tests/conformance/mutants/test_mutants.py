"""Tests of the mutants. Each mutant can still be planted, every rule has a mutant, and the hardest mutants are caught within
seconds. `make mutants` hunts all mutants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from conformance.mutants import planting, seams, suites
from conformance.mutants.catalogue import LATER, MUTANTS, by_name, uncovered
from conformance.mutants.hunting import Hunt, caught, hunt
from conformance.mutants.planting import FAULTS, Mutant, check_applies, planted
from conformance.mutants.seams import StaleMutant, Swap
from conformance.mutants.suites import (
    AlreadyBroken,
    Catch,
    by_scripts,
    by_search,
    by_simulator,
    by_store,
    by_test,
    check_tests,
)
from conformance.results import Outcome
from conformance.scripts.running import scripts
from conformance.simulator.casts import pasts
from conformance.simulator.quiet import quiet
from conformance.simulator.schedules import schedule
from conformance.simulator.search.scenarios import SCENARIOS
from conformance.simulator.world import stage
from conformance.store.suite import CASES
from metadata.common.errors import OptionError
from metadata.rules import transitions

CUT = "metadata.rules.transitions:cut"


def _last(real: Callable[[Iterable[int], int], int], undecided: Iterable[int], end_of_log: int) -> int:
    return end_of_log


def _same(real: Callable[[Iterable[int], int], int], undecided: Iterable[int], end_of_log: int) -> int:
    return real(undecided, end_of_log)


NOTHING = Mutant("nothing", ("8.6",), "Nothing is changed.", (Swap(CUT, _same),), store="memory")

SHARPEST: dict[str, Callable[[Mutant], Catch | None]] = {
    "late-abort-ends-the-successor": partial(by_simulator, count=600),
    "settle-all-committed": partial(by_simulator, count=150),
    "named-by-header": partial(by_simulator, count=600),
    "keep-tail": partial(by_simulator, count=150),
    "raise-before-forget": partial(by_simulator, count=150),
    "reread-gone": partial(by_search, only="crossing"),
    "layouts-before-seals": partial(by_scripts, only="check_finds_a_seal"),
    "allowance-in-seconds": partial(by_scripts, only="a12_*"),
    "index-scan-by-prefix": partial(by_store, only="indexes/index-ranges-are-exact"),
    "session-changes-between-reads": partial(by_store, only="sessions/*"),
    "second-transition-wins": partial(by_simulator, count=120),
    "snapshot-newer-than-its-data": partial(by_simulator, count=120),
    "property-read-before-the-list": partial(by_scripts, only="instream_property"),
    "abort-deletes-files": partial(by_simulator, count=1, seed=1097),  # one schedule in a thousand catches it
    "first-child-takes-all": partial(by_simulator, count=60),
    "backup-of-a-later-watermark": partial(by_simulator, count=40),
    "backup-ends-a-log-with-its-last-data": partial(by_simulator, count=40),
    "buffer-without-its-lock": partial(by_simulator, count=600, seed=100),  # one schedule in a hundred catches it
}
"""Mutants that are hard to catch. Each has the suite that catches it most quickly, with more tries than the suite needs."""


@pytest.mark.parametrize("fault", MUTANTS, ids=lambda fault: fault.name)
def test_a_mutant_can_still_be_planted(fault: Mutant) -> None:
    check_applies(fault)


def test_every_rule_has_a_mutant() -> None:
    assert not uncovered()
    assert len({fault.name for fault in MUTANTS}) == len(MUTANTS) >= 45
    assert all(reason for reason in LATER.values())
    assert not [(fault.name, rule) for fault in MUTANTS for rule in fault.rules if rule in LATER]


def test_every_test_named_by_a_mutant_exists() -> None:
    check_tests(MUTANTS)


def test_every_script_scenario_and_case_named_by_a_mutant_exists() -> None:
    there = {
        "script": {path.stem for path in scripts()},
        "search": set(SCENARIOS),
        "store": {case.name for case in CASES},
    }
    for fault in MUTANTS:
        for suite, _, name in (hint.partition(" ") for hint in fault.by if hint not in fault.tests):
            assert name.isdigit() if suite == "seed" else name in there[suite], (fault.name, suite, name)


@pytest.mark.parametrize(
    "name", ["tests/conformance/mutants/test_mutants.py::test_nowhere", "tests/scripts/a24_a_seal_stalls_nobody.txt"]
)
def test_a_missing_test_stops_a_hunt_before_its_start(name: str) -> None:
    fault = replace(by_name("cut-at-the-end"), by=(name,))
    with pytest.raises(AlreadyBroken, match=name):
        hunt([fault], cores=1, told=lambda found: pytest.fail("nothing may be planted"))


def test_no_two_mutants_are_one_fault() -> None:
    seen: dict[object, list[str]] = {}
    for fault in MUTANTS:
        assert len({swap.where for swap in fault.swaps}) == len(fault.swaps), f"{fault.name} replaces a function twice"
        seen.setdefault(tuple(map(_does, fault.swaps)), []).append(fault.name)
    assert [names for names in seen.values() if len(names) > 1] == []


def _does(swap: Swap) -> object:
    assert isinstance(swap.replacement, FunctionType)
    code = swap.replacement.__code__
    return swap.where, swap.within, code.co_code, code.co_names, tuple(str(one) for one in code.co_consts)


@pytest.mark.parametrize("name", SHARPEST)
def test_the_hardest_mutants_are_caught(name: str) -> None:
    fault = by_name(name)
    assert SHARPEST[name](fault) is not None, fault.why


def test_without_a_fault_no_suite_fails() -> None:
    assert by_scripts(NOTHING, only="a0*") is None
    assert by_store(NOTHING, only="indexes/*") is None
    assert by_simulator(NOTHING, 20) is None


# --- planting -----------------------------------------------------------------------------------------------------


def test_a_planted_function_is_changed_everywhere_and_comes_back() -> None:
    known = transitions.cut
    with planted(by_name("cut-at-the-end")):
        assert known([3], 9) == transitions.cut([3], 9) == 9
    assert known([3], 9) == transitions.cut([3], 9) == 2


def test_a_replaced_function_is_changed_everywhere_and_comes_back() -> None:
    known = transitions.cut
    with planted(Mutant("last", ("8.6",), "", (Swap(CUT, _last),))):
        assert known([3], 9) == transitions.cut([3], end_of_log=9) == 9
    assert known([3], 9) == transitions.cut([3], 9) == 2


def test_a_function_is_replaced_for_one_caller_alone() -> None:
    within = f"{__name__}:_asks"
    with planted(Mutant("last", ("8.6",), "", (Swap(CUT, _last, (within,)),))):
        assert _asks() == [9, 9]
        assert transitions.cut([3], 9) == 2


def _asks() -> list[int]:
    return [transitions.cut([number], 9) for number in (3, 4)]


class Kept:
    """A class with the kinds of functions that the product has."""

    def __init__(self) -> None:
        self.seen = 0

    @property
    def shown(self) -> int:
        return self.seen

    @cached_property
    def known(self) -> int:
        return self.seen

    @classmethod
    def of(cls, number: int = 1) -> tuple[str, int]:
        return cls.__name__, number

    @contextmanager
    def held(self) -> Iterator[int]:
        yield self.seen

    def counted(self, to: int) -> Iterator[int]:
        yield from range(to)

    def named(self, one: int, /, two: int = 2, *more: int, last: int = 4, **options: int) -> list[object]:
        return [__class__, one, two, more, last, options]  # type: ignore[name-defined]

    def factorial(self, number: int) -> int:
        return 1 if number == 0 else number * self.factorial(number - 1)


@lru_cache
def squared(number: int) -> int:
    return number**2


def _and_more(real: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    found = real(*arguments, **options)
    match found:
        case int():
            return found + 1
        case list() | tuple():
            return [*found, "more"]
        case _:
            return found


CALLS: dict[str, Callable[[], object]] = {
    "Kept.shown": lambda: Kept().shown,
    "Kept.known": lambda: Kept().known,
    "Kept.of": lambda: (Kept.of(), Kept.of(number=2)),
    "Kept.named": lambda: (Kept().named(1, last=3), Kept().named(1, 5, 6, other=7)),
    "Kept.factorial": lambda: Kept().factorial(3),
    "squared": lambda: squared(3),
}


@pytest.mark.parametrize("where", CALLS)
def test_a_function_of_any_kind_is_replaced_and_gets_its_arguments(where: str) -> None:
    before = CALLS[where]()
    with planted(Mutant("more", ("8.6",), "", (Swap(f"{__name__}:{where}", _and_more),))):
        changed = CALLS[where]()
    assert changed == AND_MORE[where]
    assert CALLS[where]() == before


AND_MORE: dict[str, object] = {
    "Kept.shown": 1,
    "Kept.known": 1,
    "Kept.of": (["Kept", 1, "more"], ["Kept", 2, "more"]),
    "Kept.named": ([Kept, 1, 2, (), 3, {}, "more"], [Kept, 1, 5, (6,), 4, {"other": 7}, "more"]),
    "Kept.factorial": 22,  # the replacement adds 1 at each level: 3 * (2 * (1 * (1 + 1) + 1) + 1) + 1
    "squared": 10,
}


def test_generators_and_context_managers_are_replaced() -> None:
    def doubled(real: Callable[..., Iterator[int]], self: Kept, *arguments: int) -> Iterator[int]:
        return (2 * one + 1 for one in real(self, *arguments))

    with planted(Mutant("doubled", ("8.6",), "", (Swap(f"{__name__}:Kept.counted", doubled),))):
        assert list(Kept().counted(3)) == [1, 3, 5]
    with planted(Mutant("doubled", ("8.6",), "", (Swap(f"{__name__}:Kept.held", doubled),))), Kept().held() as found:
        assert found == 1


def test_a_fault_is_declared_by_its_replacing_function() -> None:
    def cut_at_the_very_end(real: Callable[..., int], undecided: Iterable[int], end_of_log: int) -> int:
        return end_of_log

    known = list(FAULTS)
    try:
        planting.fault("A1, 8.6", "Why.", at=CUT, within=f"{__name__}:_asks", by="seed 7")(cut_at_the_very_end)
        (made,) = FAULTS[len(known) :]
    finally:
        FAULTS[:] = known
    assert (made.name, made.rules, made.by, made.tests) == ("cut-at-the-very-end", ("A1", "8.6"), ("seed 7",), ())
    with planted(made):
        assert _asks() == [9, 9]


def _shorter(real: Callable[[Iterable[int], int], int], undecided: Iterable[int]) -> int:
    return real(undecided, 0)


@pytest.mark.parametrize("where", [CUT, "metadata.rules.transitions:gone", "metadata.rules.transitions:Opening.OPEN"])
def test_a_stale_replacement_is_an_error(where: str) -> None:
    with pytest.raises(StaleMutant, match="mutant anew"):
        check_applies(Mutant("stale", ("8.6",), "", (Swap(where, _shorter),)))


def test_worlds_made_by_changed_code_are_dropped() -> None:
    with planted(MUTANTS[0]), quiet():
        schedule(0)
        assert stage.made.cache_info().currsize > 0
    assert stage.made.cache_info().currsize == pasts.made.cache_info().currsize == 0


def test_a_planted_function_comes_back_after_an_error() -> None:
    with pytest.raises(KeyError), planted(by_name("cut-at-the-end")):
        raise KeyError
    assert transitions.cut([3], 9) == 2


def test_a_mutant_of_which_one_function_is_gone_changes_none() -> None:
    stale = Mutant("stale", ("8.6",), "", (Swap(CUT, _last), Swap("metadata.rules.transitions:gone", _last)))
    with pytest.raises(StaleMutant, match="mutant anew"), planted(stale):
        raise AssertionError
    assert transitions.cut([3], 9) == 2


def _wrong(real: Callable[[Iterable[int], int], int], undecided: Iterable[int], end_of_log: int) -> int:
    return real(undecided)  # type: ignore[call-arg]  # has one argument too few


def _fails_in_the_product(real: Callable[[Iterable[int], int], int], undecided: Iterable[int], end_of_log: int) -> int:
    return real(None, end_of_log)


def test_an_error_of_the_replacement_itself_is_no_catch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seams, "RAISED", raised := list[str]())
    monkeypatch.setattr(planting, "RAISED", raised)
    with pytest.raises(TypeError), planted(Mutant("in-product", ("8.6",), "", (Swap(CUT, _fails_in_the_product),))):
        transitions.cut([3], 9)
    assert raised == []
    with (
        pytest.raises(StaleMutant, match=r"_wrong, line \d+: TypeError"),
        planted(Mutant("wrong", ("8.6",), "", (Swap(CUT, _wrong),))),
        pytest.raises(TypeError),
    ):
        transitions.cut([3], 9)


def test_a_suite_that_fails_anyway_catches_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A suite that fails without a mutant raises AlreadyBroken. Otherwise it would seem to catch every mutant."""
    (tmp_path / "wrong.txt").write_text("topic a\nread a\n----\ncut 5\n")
    monkeypatch.setattr(suites, "scripts", lambda: [tmp_path / "wrong.txt"])
    with pytest.raises(AlreadyBroken, match="wrong: it fails without any mutant"):
        by_scripts(by_name("cut-at-the-end"))


@pytest.mark.parametrize("kind", ["instream", "migrating"])
def test_a_schedule_of_a_kind_that_fails_anyway_catches_nothing(kind: str) -> None:
    with planted(by_name("second-append-of-one-id-counts")), pytest.raises(AlreadyBroken, match=f"--kind {kind}: it fails without"):
        by_simulator(replace(NOTHING, kind=kind), 25)


def test_a_schedule_that_fails_anyway_catches_nothing() -> None:
    """A schedule that fails without a mutant raises AlreadyBroken, even if it is not among the first schedules."""
    with planted(by_name("settle-all-committed")), pytest.raises(AlreadyBroken, match="simulator, --seed"):
        by_simulator(NOTHING, 150)


def test_a_scenario_that_fails_anyway_catches_nothing() -> None:
    with planted(by_name("settle-all-committed")), pytest.raises(AlreadyBroken, match="search, "):
        by_search(NOTHING)


def test_an_unknown_kind_catches_nothing() -> None:
    with pytest.raises(AlreadyBroken, match="--kind nowhere"):
        by_simulator(replace(NOTHING, kind="nowhere"), 1)


def test_a_test_that_fails_anyway_catches_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_wrong.py").write_text("def test_wrong() -> None:\n    assert False\n")
    with pytest.raises(AlreadyBroken, match="test_wrong"):
        by_test(by_name("cut-at-the-end"), str(tmp_path / "test_wrong.py"))


def test_the_first_example_that_fails_is_enough(tmp_path: Path) -> None:
    """Hypothesis does not shrink a failing example in a test of a mutant, because that can take minutes."""
    test = tmp_path / "test_shrinks.py"
    test.write_text(
        "from hypothesis import Phase, settings\n\n\ndef test_it() -> None:\n    assert Phase.shrink in settings().phases\n"
    )
    assert by_test(by_name("cut-at-the-end"), str(test)) is not None


def test_an_unknown_mutant_is_an_error() -> None:
    with pytest.raises(OptionError, match="no mutant"):
        by_name("nobody")


# --- hunting ------------------------------------------------------------------------------------------------------


def test_a_hunt_goes_from_the_scripts_to_the_simulator() -> None:
    fault, seen = by_name("cut-at-the-end"), list[Hunt]()
    (found,) = hunt([fault], cores=1, limit=50, beside=200, told=seen.append)
    assert seen == [found]
    assert [catch.suite for catch in found.catches] == ["scripts", "simulator"]
    result = found.result(0)
    assert result.outcome is Outcome.OK
    assert result.figures.keys() == {"scripts", "simulator"}


def test_an_undetected_mutant_fails() -> None:
    found = Hunt(by_name("cut-at-the-end"), (), 20_000, 1.0)
    assert found.result(0).outcome is Outcome.FAILED
    assert "a check is missing" in found.result(0).detail
    assert caught(found) == "unseen in 20000 schedules"


def test_a_mutant_whose_named_checks_do_not_catch_it_fails() -> None:
    fault = replace(by_name("cut-at-the-end"), by=("script a01_late_commit_hits_no_successor",))
    ways = (Catch("scripts", "other", 1, ""),)
    assert Hunt(fault, ways, None, 1.0, by_hint=True).result(0).outcome is Outcome.OK
    result = Hunt(fault, ways, None, 1.0).result(0)
    assert result.outcome is Outcome.FAILED
    assert "None of script a01_late_commit_hits_no_successor caught it" in result.detail


def test_a_stale_mutant_stops_a_hunt_before_its_start() -> None:
    stale = Mutant("stale", ("8.6",), "", (Swap(CUT, _shorter),))
    with pytest.raises(StaleMutant):
        hunt([by_name("cut-at-the-end"), stale], cores=1, told=lambda found: pytest.fail("nothing may be planted"))


def test_a_hunt_reports_each_detection_with_its_cost() -> None:
    ways = (Catch("store", "ranges/x", 3, ""), Catch("simulator", "--seed 9", 10, ""), Catch("tests", "tests/x.py", 1, ""))
    found = Hunt(by_name("cut-at-the-end"), ways, 10, 1.0)
    assert caught(found) == "store suite: ranges/x (no. 3); simulator, --seed 9 (no. 10); tests/x.py"
