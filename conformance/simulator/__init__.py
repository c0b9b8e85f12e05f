"""A deterministic simulator of the REAL protocol code. A seed determines a schedule, byte for byte.

A package imports only packages below it in this list (`make lint`).

schedules  runs one schedule by its seed, or many schedules
search     explores every schedule of a small cast up to 3 preemptions and 1 crash
quiet      a context in which schedules run faster, with the same results
casts      the actors of a schedule, for each kind of schedule, and the share of each kind
actors     writers, readers, consumers, sweepers: they run the code of `metadata`, the source and the sink as it is
world      processes on one store; the scheduler decides which thread (greenlet) takes the next step and which process crashes
seen       records the store's writes from outside, interprets them, and checks the end state
store      a store, files, a clock and watches; each call is a step, and a gate decides its fate
"""
