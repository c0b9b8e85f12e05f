"""What every room uses: errors, option names, service URLs, clocks, metrics."""
