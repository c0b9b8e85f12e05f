"""A deterministic simulator of the REAL protocol code: one seed, one schedule, byte for byte.

A room imports those below it in this list, and no other (`make lint`).

schedules  one schedule by its seed, many by count
search     every schedule of a small cast up to 3 preemptions and 1 crash
quiet      the same schedules, fast
casts      who is in a schedule, for each kind of schedules, and how many of each kind are run
actors     writers, readers, consumers, sweepers: they run the code of `metadata`, the source and the sink as it is
world      processes on one store, whose threads (greenlets) take turns as the scheduler says: who goes next, who crashes
seen       what an outsider sees of the store's writes, what these mean, and what must be true in the end
store      a store, files, a clock and watches; each call is a step, and a gate says what becomes of it
"""
