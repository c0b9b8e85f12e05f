"""The command line. One module for each group of commands; `main` puts them together."""
