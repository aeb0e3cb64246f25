"""Starts the engine servers of a run on this host, for schedulers that start each host separately."""

import signal
import sys
import time
from types import FrameType

from halfway.curriculum import UserError
from halfway.experiments.config.run import RunConfig
from halfway.experiments.running.launch import LOCAL, POLL_SECONDS, Command, run_commands
from halfway.trainers.engines.vllm_servers import auth


def serving_commands(config: RunConfig, address: str) -> list[Command]:
    """The servers of a rollout host.

    Raises:
        UserError: if the engine has no servers.
    """
    engine = config.rollouts.engine
    services = engine.part.services(config.planned(), address)
    if not services:
        raise UserError(f"rollouts.engine: {engine.name!r} has no servers; use one that has, such as vllm_servers")
    return [Command(LOCAL[0], one.words, one.environment, serves=True) for one in services]


def token() -> str:
    """The token of the run. Raises UserError if the environment lacks it."""
    given = auth.given_token()
    if given is None:
        raise UserError(
            f"serve: servers accept only requests with their token; set {auth.VARIABLE}, or "
            f"{auth.FILE_VARIABLE} to a file of mode 600, for them and for the run"
        )
    return given


def serve(config: RunConfig, address: str) -> None:
    """Run the servers until this process is asked to end, and restart any that end too early.

    Args:
        address: the only address of this host on which they listen.
    """
    signal.signal(signal.SIGTERM, _leave)
    with run_commands(serving_commands(config, address), "ssh", {auth.VARIABLE: token()}) as running:
        while True:
            for one in running:
                one.start_again()
            time.sleep(POLL_SECONDS)


def _leave(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)
