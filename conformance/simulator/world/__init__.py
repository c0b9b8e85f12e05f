"""Where a schedule happens: processes on one store, whose threads take turns as the scheduler says."""
