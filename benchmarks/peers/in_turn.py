"""Small micro-batches of several systems in one Spark session, in turn: `python -m benchmarks.peers.in_turn`.

Cells of their own (`make peers`) say how long a micro-batch takes in a young JVM, which still compiles. On a machine with changing
load they compare badly, because each cell sees another load. Here all systems share one JVM, and each round runs all of them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from benchmarks.measure import machine
from benchmarks.peers import waiting
from benchmarks.peers.cell import Specification
from benchmarks.peers.environment import connectors, jars, python_of_cells
from benchmarks.peers.kafka_broker import KafkaBroker
from benchmarks.peers.systems import KINDS, session
from benchmarks.peers.tables import markdown
from benchmarks.peers.workloads import Cell
from conformance.processes import marked
from conformance.zookeeper_server import ZooKeeperServer

SYSTEMS = ("noop", "kafka_json", "txnsegment", "txnsegment_zookeeper")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.in_turn", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="after one that does not count")
    parser.add_argument("--triggers", type=int, default=25, help="counted micro-batches of a system in a round")
    parser.add_argument("--home", type=Path, default=Path("out/peers"), help="folder of environment, jars and data")
    args = parser.parse_args()
    home = args.home.resolve()
    python = python_of_cells(home)
    print(machine(), flush=True)
    with KafkaBroker(home / "kafka", jars(home, "kafka")) as kafka, ZooKeeperServer(home / "zookeeper-in-turn") as zookeeper:
        assert zookeeper.pid is not None
        servers = {"kafka": kafka.hosts, "kafka logs": str(kafka.logs), "zookeeper": zookeeper.hosts}
        paths = tuple(map(str, connectors(home)))
        given = Specification(str(home), 0, 0, args.triggers, (), paths, servers, (kafka.pid, zookeeper.pid))
        command = [str(python), "-c", "from benchmarks.peers import in_turn; in_turn.inside()", given.to_json(), str(args.rounds)]
        return subprocess.run(command, check=False, env=marked()).returncode


def inside() -> None:
    """Run the rounds in this process, which has the Python of the cells."""
    given, rounds = Specification(**json.loads(sys.argv[1])), int(sys.argv[2])
    home = Path(given.home)
    systems = {}
    for name in SYSTEMS:
        servers = given.servers if name.startswith("kafka") or name.endswith("zookeeper") else {}
        systems[name] = KINDS[name](name, home / "systems" / f"{name}-in-turn-{given.processes[1]}", servers)
    spark = session(systems["noop"], home, [Path(jar) for jar in given.jars], sys.executable)
    found = []
    for round_ in range(1 + rounds):
        for name in SYSTEMS if round_ % 2 else reversed(SYSTEMS):
            cell = Cell(systems[name], spark, home, given.rows, given.commits, given.triggers, (), tuple(given.processes))
            one = {"round": round_, "workload": "trigger_1000", "system": name, **waiting.trigger_1000(cell)}
            print(json.dumps(one), flush=True)
            if round_:
                found.append(one)
    spark.stop()
    print(markdown(found))


if __name__ == "__main__":
    sys.exit(main())
