"""All suites, in the order in which they run. Suites that take seconds come before suites that take minutes."""

from __future__ import annotations

from conformance.command.cluster import CLUSTER
from conformance.command.exhaustive import EXHAUSTIVE
from conformance.command.history import HISTORY
from conformance.command.mutants import MUTANTS
from conformance.command.scripts import SCRIPTS
from conformance.command.simulation import SIMULATION
from conformance.command.store import STORE
from conformance.command.words import Suite

SUITES: tuple[Suite, ...] = (HISTORY, SCRIPTS, STORE, SIMULATION, EXHAUSTIVE, MUTANTS, CLUSTER)
