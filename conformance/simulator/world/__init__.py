"""The world of a schedule: processes, a store, a disk and a clock. The scheduler decides which thread takes the next step."""
