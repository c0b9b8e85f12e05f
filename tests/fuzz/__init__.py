"""What strangers may write: `make fuzz` looks for inputs that raise what is not ours, `make test` replays those found."""
