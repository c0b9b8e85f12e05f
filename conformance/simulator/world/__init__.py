"""The world of a schedule: processes on one store. The scheduler decides which thread takes the next step."""
