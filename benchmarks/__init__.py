"""Every number that the README claims, as ratios within one run against named baselines: `make bench`."""
