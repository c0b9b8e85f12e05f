"""The read path: the cut, and the visible rows below it."""
