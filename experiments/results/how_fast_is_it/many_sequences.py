"""Has one vLLM server continue thousands of sequences at once under a low limit on open files, and counts what is lost.

    python experiments/results/how_fast_is_it/many_sequences.py [--sequences 4096] [--open-files 1024]

Needs vLLM. The limit holds for this process and for the server, which has a tiny model with random weights. Prints one
line; the exit status is 1 if a sequence was lost, sent again, or answered by a server that was started again.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from halfway.experiments.scripts import script, script_parser

NEW_TOKENS = 16


def start(folder: Path, sequences: int) -> Any:
    """An engine with one server, which may decode all sequences together."""
    from halfway.experiments.proving.learner import build_model
    from halfway.trainers.engines.base import EngineSetup
    from halfway.trainers.engines.vllm_servers.part import VllmServers

    model = build_model()
    model.save_pretrained(folder / "model")
    part = VllmServers(max_length=128, kv_cache_gib=0.5, folder=str(folder))
    return part.build(EngineSetup(model, str(folder / "model"), [], 0, max_sequences=sequences))


@script
def main() -> int:
    """Start the server, send everything, and count."""
    parser = script_parser(__doc__)
    parser.add_argument("--sequences", type=int, default=4096)
    parser.add_argument("--open-files", type=int, default=1024)
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (arguments.open_files, arguments.open_files))
    count, rng = arguments.sequences, np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        engine = start(Path(folder), count)
        pid, begun = engine.servers[0].process.pid, time.monotonic()
        done = engine.generate(list(rng.integers(3, 64, (count, 32))), [NEW_TOKENS] * count, list(range(count)))
        seconds, same = time.monotonic() - begun, engine.servers[0].process.pid == pid
        engine.close()
    whole = sum(len(each.tokens_T) == NEW_TOKENS for each in done)
    print(
        f"{whole} of {count} sequences are whole, {engine.retried} were sent again, the server is "
        f"{'the same' if same else 'another'}; {engine.client.connections} connections at once under a limit of "
        f"{arguments.open_files} open files, {seconds:.0f} s"
    )
    return int(whole < count or engine.retried > 0 or not same)


if __name__ == "__main__":
    sys.exit(main())
