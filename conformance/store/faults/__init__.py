"""Deliberate faults of a metadata store. They test the suite itself: each fault names the case that must fail because of it.

    run(url, seed, opener=lambda url: fault.wrap(open_store(url)))

A fault is a wrapper around a store without faults. Most of these faults occurred in real systems (protocol.md section 9).
"""

from conformance.store.faults import of_ranges, of_time, of_writes  # each module adds its faults to FAULTS
from conformance.store.faults.planting import FAULTS, Fault, Sound

__all__ = ["FAULTS", "Fault", "Sound", "of_ranges", "of_time", "of_writes"]
