"""Golden scripts: transactions as text. The script has the exact answer to each command, as in the tests of etcd/raft.

`python -m conformance.scripts` runs the scripts of this project. With `--rewrite` it writes the current answers into the scripts,
for review.
"""

from conformance.scripts.parsing import ScriptError
from conformance.scripts.running import FOLDER, Failure, check, rewrite, scripts

__all__ = ["FOLDER", "Failure", "ScriptError", "check", "rewrite", "scripts"]
