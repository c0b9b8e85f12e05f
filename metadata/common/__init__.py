"""Shared by all rooms: errors, option names, service URLs, clocks, metrics."""
