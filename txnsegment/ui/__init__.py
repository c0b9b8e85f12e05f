"""The web page of `txnsegment ui`. `access` says who may look. `drawing` draws charts. `pages` makes the HTML. `app` has the
routes, and `server` runs them. The watcher (`txnsegment.look`) reads the cluster; a request never does.
"""
