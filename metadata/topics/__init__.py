"""Topics: layouts, schemas, policies, subscriptions."""
