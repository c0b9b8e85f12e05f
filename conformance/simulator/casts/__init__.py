"""Who is in a schedule, for each kind of schedules, and how many of each kind are run."""
