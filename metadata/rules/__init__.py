"""The rules of the protocol. Pure: no I/O, no clock."""
