"""Two vLLM servers, which the tests of this folder share, since starting one costs most of a test's time."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

SILENT_SECONDS = 15.0


class Servers(NamedTuple):
    """An engine with two servers of its own, and the policy whose weights they get."""

    engine: Any
    policy: Any


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    pytest.importorskip("vllm", reason="vLLM is not installed (extra vllm)", exc_type=ImportError)
    from drivers.vllm_driver import PAD, TEMPERATURE, build_policy

    from halfway.trainers.engines.base import EngineSetup
    from halfway.trainers.engines.vllm_servers.part import VllmServers

    folder = tmp_path_factory.mktemp("servers")
    policy = build_policy(folder)
    part = VllmServers(kv_cache_gib=0.05, count=2, folder=str(folder), seconds=SILENT_SECONDS)
    engine = part.build(EngineSetup(policy, str(folder), [], PAD, TEMPERATURE, max_sequences=8))
    yield Servers(engine, policy)
    engine.close()
