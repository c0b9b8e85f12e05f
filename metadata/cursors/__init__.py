"""Cursors of subscriptions, and the claims of transactions on them."""
