"""The queues of `trimaran size` held against reality: predicted and measured latencies of 1, 2 and 3 replicas, up to
three quarters of their capacity.

    python benchmarks/size_queues.py -o benchmarks/results/size-queues.json      (11 minutes)

The model of `pods.py` sleeps instead of computing, so that replicas do not share cores. Arrivals, the choice of a
replica, queues and the batcher are then as on machines of their own. `size_check.py` asks a real model, with which the
cores of one machine allow only small loads.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import experiment
import pods
import size_check

# Of the most texts a second that all replicas answer.
LOADS = (0.25, 0.5, 0.75)
# A batch of the largest size takes 94 ms.
SECONDS_A_BATCH, SECONDS_A_TEXT, LARGEST_BATCH = 0.03, 0.008, 8


def main() -> int:
    parser = experiment.options(__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="for each load of each round")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "repository"
        pods.lay_out_versions(
            repository, 1, seconds=SECONDS_A_BATCH, seconds_a_text=SECONDS_A_TEXT, batch=LARGEST_BATCH
        )
        result = size_check.run(
            repository,
            "m",
            "trimaran size against measured replicas that sleep instead of computing",
            lambda replicas, most: [share * replicas * most for share in LOADS],
            seconds=options.seconds,
            rounds=options.rounds,
        )
    return experiment.finish(result, options.output)


if __name__ == "__main__":
    sys.exit(main())
