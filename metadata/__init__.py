"""The transaction protocol and its state: records, rules, the store they live in, and who moves them.

Reading order: `names`, `records`, `paths` (what is kept), `transitions` (the rules, pure), `store` (where), `cluster`
(which one), then `coordinator`, `transaction_buffer` and `sweeper`, which carry the rules out. "protocol.md" is docs/protocol.md.

    rules, pure        transitions  acks  row_ranges  scaling  retention  consistent_cut
    records            records  json_records  cluster_records  paths  names  stored
    one deployment     service  cluster  client  clock  errors  metrics  options  providers (which model serves a topic)
    writing            write_set  routing  staging_manifests  rerouting  coordinator  closing  ending  txn_ids  aftermath
    reading            reading  log  transaction_buffer  segment_view  backlog
    topics             topic  topics  schemas  policies  autoscaling  leading
    subscriptions      subscriptions  cursors  pending_ack
    sweeping           sweeper  folding  remains  orphans  retired  upkeep  trimming  compaction
    backups            backup  backup_file  restore
    other rooms        store (the backends)  instream (the older model)
"""
