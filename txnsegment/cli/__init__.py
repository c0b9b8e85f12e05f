"""The command line. Each group of commands is one module, and `app` builds the whole command."""
