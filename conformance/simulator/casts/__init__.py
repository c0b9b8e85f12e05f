"""The casts: the actors of a schedule, for each kind of schedule, and the share of each kind."""
