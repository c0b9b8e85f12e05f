"""Golden scripts: transactions as text, each command with its exact answer (as in etcd/raft).

`python -m conformance.scripts` runs the scripts of this project; `--rewrite` writes the current answers for review.
"""

from conformance.scripts.parsing import ScriptError
from conformance.scripts.running import FOLDER, Failure, check, rewrite, run_all, scripts

__all__ = ["FOLDER", "Failure", "ScriptError", "check", "rewrite", "run_all", "scripts"]
