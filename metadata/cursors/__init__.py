"""Cursors of subscriptions, and the pending acks (claims) of transactions on them."""
