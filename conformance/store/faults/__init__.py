"""Deliberate faults of a metadata store, one at a time, to show that the suite has teeth: each is caught by a case that is named.

    run(url, seed, opener=lambda url: fault.wrap(open_store(url)))

A fault is a wrapper around a sound store. Most are faults that real systems had: see protocol.md section 9.
"""

from conformance.store.faults import of_ranges, of_time, of_writes  # each declares its own in FAULTS
from conformance.store.faults.planting import FAULTS, Fault, Sound

__all__ = ["FAULTS", "Fault", "Sound", "of_ranges", "of_time", "of_writes"]
