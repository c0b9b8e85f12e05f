"""Golden scripts: transactions as text. Below its commands, a script has their exact answers, as in the tests of etcd/raft.

`python -m conformance.scripts` runs the scripts of this project. With `--rewrite` it replaces the answers in the scripts by the
current ones, for review.
"""

from conformance.scripts.parsing import ScriptError
from conformance.scripts.running import FOLDER, Failure, check, rewrite, scripts

__all__ = ["FOLDER", "Failure", "ScriptError", "check", "rewrite", "scripts"]
