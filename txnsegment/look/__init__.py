"""What there is to see of a cluster, for `txnsegment ui` and `txnsegment top`. Nothing here changes a cluster.

`seen` has what one look finds. `reading` makes a look by bounded reads. `samples` computes rates from two looks. `watcher` looks
again and again. `series` turns a look into Prometheus series.
"""
