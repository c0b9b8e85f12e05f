"""A deterministic simulator of the REAL protocol code: one seed, one schedule, byte for byte.

faults     a metadata store over the memory store's pure state: each atomic step passes a gate that says what becomes of it
wakes      watches that wake late, twice or never
storage    a ledger storage in memory, with the same gate
clock      the store's time and the processes' own
plan       how one schedule behaves
scheduler  the world: actors as greenlets, who goes next, who crashes, how time moves
stage      its topics
keyed      parts whose rows have keys
origins    parts that were put together by compaction
pasts      what was written before a schedule begins
casts      who is in a schedule: everybody at once, a few from the beginning, a few in the middle of things
acking, moving, splitting, compacting, backups, in_stream, in_stream_backups, migrating: casts of other kinds
kinds      how many schedules of each cast there are, long and short
working    rounds of work, and which errors no fault of a world explains
writers, consuming, readers, spark_readers, sweepers, subscribing: actors, on topics of either model
in_stream_clients, in_stream_readers: what only persistent topics have
observer   what an outsider sees of the store's writes
cursors, in_stream_logs, in_stream_acks: what these mean
checks     what must be true of a history; shares no code with what it checks
schedules  one schedule by seed, many by count
quiet      the same, fast
exhaustive every schedule of a small cast up to 3 preemptions and 1 crash (automata, scenarios, footprints)
"""
