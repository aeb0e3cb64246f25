"""Measures how many generated functions per second the sandbox checks, each on ten inputs in two processes.

python -m halfway.experiments.benchmarks.sandbox [processes in each lane]
"""

import sys
import time

from halfway.trainers.propel.domains.candidates import read
from halfway.trainers.propel.domains.induction import FunctionInduction

FUNCTIONS = 1000


def main() -> None:
    processes = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    domain = FunctionInduction(syntax="short", seconds=2.0, processes=processes)
    texts = [f"x*{i}-x%{i % 7 + 2}>0,1,2,3,4,5,6,7,8,9" for i in range(1, FUNCTIONS + 1)]
    read(domain, texts[:4])  # starts the workers
    start = time.perf_counter()
    candidates = read(domain, texts)
    seconds = time.perf_counter() - start
    assert all(candidate.valid for candidate in candidates)
    print(f"{FUNCTIONS} functions in {seconds:.1f} s: {FUNCTIONS / seconds:.0f} checked functions a second")


if __name__ == "__main__":
    main()
