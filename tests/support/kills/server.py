"""A vLLM server that outlives the runs for which it samples, and is killed beside them."""

import os
import time
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from paths import REPOSITORY

from halfway.trainers.distributed.ports import free_port
from halfway.trainers.engines.vllm_servers.auth import VARIABLE, new_token
from halfway.trainers.engines.vllm_servers.part import VllmServers
from halfway.trainers.engines.vllm_servers.server.server import Server
from halfway.trainers.engines.vllm_servers.server_options import SERVER_ENVIRONMENT, server_command

MODEL = "experiments/starting_models/sums_wide"
POLL_SECONDS = 0.2
START_SECONDS = 1200.0


@cache
def the_server() -> Server:
    """The server of this process and of its forks; not started yet."""
    os.environ[VARIABLE] = token = new_token()
    options, address = VllmServers(kv_cache_gib=0.05, max_length=256), f"127.0.0.1:{free_port()}"
    command = server_command(str(REPOSITORY / MODEL), address, "float32", options, 8, chunked=False)
    environment = SERVER_ENVIRONMENT | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return Server(address, command, Path(mkdtemp(prefix="kills-server-")) / "log", environment, token=token)


def await_server() -> None:
    """Wait until it can take weights; start it if it has ended, or was left in the middle of an update."""
    server, deadline = the_server(), time.monotonic() + START_SECONDS
    while True:
        server.failure = ""
        if server.ready():
            return
        assert time.monotonic() < deadline, server.last_words()
        if server.ended() or server.failure:
            server.start()
        time.sleep(POLL_SECONDS)
