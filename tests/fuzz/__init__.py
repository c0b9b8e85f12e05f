"""Input from outside: `make fuzz` searches for inputs that raise a foreign exception; `make test` replays the inputs found."""
