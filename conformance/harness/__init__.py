"""What the suites share: a store whose calls a policy decides about."""
