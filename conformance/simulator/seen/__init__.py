"""What an outsider sees of the store's writes, what these mean, and what must be true of them in the end."""
