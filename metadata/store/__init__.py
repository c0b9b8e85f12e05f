"""Where the records live: the contract, and one file for each backend."""
