"""Two vLLM servers on this host: sampling, weights, strangers, and what happens when one dies or freezes."""

import copy
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drivers.vllm_driver import PAD, TEMPERATURE, build_policy, calls, change, logprobs_by_one_pass
from engine_drivers import attack
from hypothesis import given
from hypothesis import strategies as st
from learner_harness import assert_close, gradient_by_hand, make_group, recorded_gradients
from messages import says

from halfway.curriculum import Rollout, Stream, UserError
from halfway.trainers.engines.contract import Completion, EngineSetup
from halfway.trainers.engines.sync_check import SyncCheck
from halfway.trainers.engines.vllm_servers.auth import VARIABLE, headers
from halfway.trainers.engines.vllm_servers.engine import VllmServersEngine
from halfway.trainers.engines.vllm_servers.load_balancing import assign
from halfway.trainers.engines.vllm_servers.part import VllmServers
from halfway.trainers.engines.vllm_servers.server import protocol
from halfway.trainers.learner.learner import PolicyGradientLearner
from halfway.trainers.learner.learner_options import LearnerOptions
from halfway.trainers.rollouts.attempts import response_of

pytest.importorskip("vllm", reason="vLLM is not installed (extra vllm)", exc_type=ImportError)
pytestmark = pytest.mark.engines

SILENT_SECONDS = 15.0
Running = tuple[VllmServersEngine, Any]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """An engine with its own two servers, which all tests share, and the policy that gives them weights."""
    folder = tmp_path_factory.mktemp("servers")
    policy = build_policy(folder)
    part = VllmServers(kv_cache_gib=0.05, count=2, folder=str(folder), seconds=SILENT_SECONDS)
    engine: Any = part.build(EngineSetup(policy, str(folder), [], PAD, TEMPERATURE, max_sequences=8))
    yield engine, policy
    engine.close()


@pytest.fixture
def engine(servers: Running) -> Running:
    """The shared servers, both of them at work."""
    wait_for_both(servers[0])
    return servers


def same_servers(
    owner: VllmServersEngine,
    policy: Any,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    count: int = 2,
    in_flight: bool = False,
    **options: Any,
) -> VllmServersEngine:
    """Another engine, which is given the first `count` servers of this one by address."""
    monkeypatch.setenv(VARIABLE, owner.servers[0].token)
    addresses = tuple(server.address for server in owner.servers[:count])
    part = VllmServers(addresses=addresses, folder=str(folder), seconds=owner.options.seconds, **options)
    setup = EngineSetup(policy, str(folder), [], PAD, TEMPERATURE, max_sequences=8, in_flight=in_flight)
    engine: Any = part.build(setup)
    return engine  # type: ignore[no-any-return]


def check(running: Running) -> float:
    engine, policy = running
    learner = PolicyGradientLearner(policy, LearnerOptions(), PAD, TEMPERATURE)
    return SyncCheck(engine, learner, policy.config.vocab_size, 256, 1e-4)()


def test_tokens_and_logprobs_are_those_of_the_policy(engine: Running) -> None:
    servers, policy = engine
    contexts, limits, seeds = calls()
    done = servers.generate(contexts, limits, seeds)
    again = servers.generate(contexts, limits, seeds)
    for context_P, limit, first, second in zip(contexts, limits, done, again, strict=True):
        assert first.tokens_T.tolist() == second.tokens_T.tolist()
        assert len(first.tokens_T) == limit and first.stop == "length"
        expected_TV = logprobs_by_one_pass(policy, context_P, first.tokens_T)
        chosen_T = expected_TV[np.arange(limit), first.tokens_T]
        np.testing.assert_allclose(first.logprobs_T, chosen_T, atol=1e-4)
    assert servers.retried == 0


def test_every_server_gets_new_weights(engine: Running) -> None:
    servers, policy = engine
    assert check(engine) < 1e-4
    change(policy, 1)
    with pytest.raises(UserError, match=says("rollouts.sync_tolerance", "weights")):
        check(engine)
    servers.sync(policy, 1)
    for alone in servers.servers:
        others = [server for server in servers.servers if server is not alone]
        for server in others:
            server.usable = False
        servers.servers = [alone]
        assert check(engine) < 1e-4
        servers.servers = sorted([alone, *others], key=lambda server: server.address)
        for server in others:
            server.usable = True


def test_an_answer_from_other_weights_is_not_accepted(engine: Running) -> None:
    servers, _ = engine
    contexts, limits, seeds = calls()
    wanted = [done.tokens_T.tolist() for done in servers.generate(contexts, limits, seeds)]
    wrong = servers.servers[0]
    wrong.call("POST", "/update_weight_version", {"new_version": "other"})
    before = servers.retried
    assert [done.tokens_T.tolist() for done in servers.generate(contexts, limits, seeds)] == wanted
    assert servers.retried > before
    assert wrong.version == servers.servers[1].version and wrong.usable


def test_rollouts_in_flight_continue_with_new_weights_and_train_by_the_closed_form(
    engine: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every token has the log-probability that the weights of its version give it after all tokens before it."""
    policy = build_policy(tmp_path)
    servers = same_servers(engine[0], policy, tmp_path, monkeypatch, in_flight=True, count=1)
    held, context_P = {0: copy.deepcopy(policy)}, np.asarray([5, 6, 7], np.int32)
    done: list[Completion] = []
    while not any(len(completion.spans) > 1 for completion in done):
        assert len(held) < 120, "no weights change while sequences are sampled"
        with ThreadPoolExecutor(1) as other:  # on a busy machine all may be sampled before the first change
            sampled = other.submit(servers.generate, [context_P] * 24, [200] * 24, list(range(24)))
            while not sampled.done() and len(held) < 120:
                version = len(held)
                change(policy, version, 0.02)
                held[version] = copy.deepcopy(policy)
                servers.sync(policy, version)
        done = sampled.result()
    servers.close()
    rollouts = []
    for i, completion in enumerate(done):
        turn = response_of(np.zeros(0, np.int32), completion)
        versions_T = turn.versions_T.tolist()
        rows = {each: logprobs_by_one_pass(held[each], context_P, turn.tokens_T) for each in set(versions_T)}
        expected_T = [rows[each][t, turn.tokens_T[t]].item() for t, each in enumerate(versions_T)]
        np.testing.assert_allclose(turn.logprobs_T, expected_T, atol=1e-4)
        rollouts.append(Rollout((turn,), i % 2 == 0))
    group = replace(make_group(context_P.tolist(), rollouts), lag=0)
    group = replace(group, lag=len(held) - 1 - group.policy_version)
    options = LearnerOptions(lr=1e-3, mismatch="token_truncated", max_grad_norm=0.0)
    learner = PolicyGradientLearner(copy.deepcopy(policy).double(), options, PAD, TEMPERATURE)
    seen = recorded_gradients(learner._backend.optimizer, learner.policy)
    told = learner.update([group], Stream(0))
    before = copy.deepcopy(policy).double()
    assert_close(seen, gradient_by_hand(before, before, group, options, TEMPERATURE), 1e-6)
    assert len([name for name in told if name.endswith("/engine_gap")]) > 1  # tokens of several lags


def wait_for_both(servers: VllmServersEngine) -> None:
    """Until a server that was restarted works again."""
    deadline = time.monotonic() + 600  # beside much else, a start takes minutes
    while not all(server.usable for server in servers.servers):
        assert time.monotonic() < deadline
        time.sleep(1)
        servers.available()


def status(url: str, method: str, token: str = "") -> int:
    """The status of an answer; 200 for one that never ends."""
    address, _, path = url.removeprefix("http://").partition("/")
    signed = headers(token, method, address, f"/{path}", b"{}")
    asked = urllib.request.Request(url, method=method, headers=signed, data=b"{}")
    try:
        with urllib.request.urlopen(asked, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_stranger_is_refused_on_every_route_that_a_real_server_lists(engine: Running) -> None:
    running = engine[0].servers[0]
    paths = running.call("GET", "/openapi.json", seconds=120)["paths"]
    routes = [(path, method.upper()) for path, methods in paths.items() for method in methods]
    routes += [(path, "GET") for path in ("/openapi.json", "/docs", "/metrics", "/health", "/load", "/no_such_route")]
    asked = {path for path, _ in routes}
    assert {"/update_weights", "/pause", "/collective_rpc", "/sleep", protocol.GENERATE, "/invocations"} <= asked
    told = {(p, m): status(f"http://{running.address}{p.replace('{', '').replace('}', '')}", m) for p, m in routes}
    assert set(told.values()) == {401}, {route: code for route, code in told.items() if code != 401}
    assert status(f"http://{running.address}/health", "GET", "another token of a run") == 401
    assert running.healthy() and len(routes) > 40


def test_a_real_server_listens_on_loopback_only(engine: Running) -> None:
    running = engine[0].servers[0]
    assert running.process is not None
    table = subprocess.run(["cat", "/proc/net/tcp", "/proc/net/tcp6"], capture_output=True, text=True, check=True)
    port = int(running.address.rpartition(":")[2])
    rows = [line.split() for line in table.stdout.splitlines()]
    listening = {row[1] for row in rows if row[3:4] == ["0A"] and row[1].endswith(f":{port:04X}")}
    assert listening == {f"0100007F:{port:04X}"}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_lost_in_the_middle_costs_a_retry_and_nothing_else(engine: Running, number: signal.Signals) -> None:
    servers, policy = engine
    change(policy, number)
    servers.sync(policy, number)
    contexts = [np.asarray([5, 6, 7 + i], np.int32) for i in range(16) for _ in range(4)]
    limits, seeds = [100] * 64, list(range(64))
    started = time.monotonic()
    wanted = [done.tokens_T.tolist() for done in servers.generate(contexts, limits, seeds)]
    whole = time.monotonic() - started
    lost, before = servers.servers[1], servers.retried
    assert lost.process is not None
    attack(lost, number, request=16)
    started = time.monotonic()
    seen: list[tuple[int, Completion]] = []
    done = servers.generate(contexts, limits, seeds, lambda i, completion: seen.append((i, completion)))
    assert time.monotonic() - started < 3 * whole + servers.options.seconds + 20
    assert [completion.tokens_T.tolist() for completion in done] == wanted
    assert 0 < servers.retried - before < 64
    assert {completion.policy_version for completion in done} == {number}
    assert sorted(i for i, _ in seen) == list(range(64)) and all(done[i] is completion for i, completion in seen)
    if number == signal.SIGSTOP:
        return  # it is restarted in the same way, which takes its time
    wait_for_both(servers)
    assert lost.version == servers.servers[0].version
    assert check(engine) < 1e-4


def test_weights_come_by_broadcast_and_a_lost_server_comes_back_at_the_next_sync(
    engine: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, _ = engine
    policy = build_policy(tmp_path)
    other = same_servers(owner, policy, tmp_path, monkeypatch, transfer="broadcast")
    for seed in range(2):
        assert check((other, policy)) < 1e-4
        change(policy, seed)
        other.sync(policy, seed + 1)
    assert check((other, policy)) < 1e-4
    (_, lost), (_, killed) = other.servers, owner.servers
    assert killed.process is not None
    os.killpg(killed.process.pid, signal.SIGKILL)
    change(policy, 2)
    other.sync(policy, 3)  # nobody knows yet that it is lost
    assert check((other, policy)) < 1e-4 and not lost.usable
    owner.generate(*calls())  # its owner notices, and starts it again
    wait_for_both(owner)
    change(policy, 3)
    other.sync(policy, 4)
    assert lost.usable and [server.version for server in other.servers] == [other.version] * 2
    assert check((other, policy)) < 1e-4
    contexts, limits, seeds = calls()
    wanted = [done.tokens_T.tolist() for done in other.generate(contexts, limits, seeds)]
    other.servers[0].usable = False
    assert [done.tokens_T.tolist() for done in other.generate(contexts, limits, seeds)] == wanted
    other.close()


def test_servers_given_by_address_get_the_weights_of_the_run_and_keep_no_others(
    engine: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last test that uses the fixture: it leaves a server in the middle of an update."""
    servers, policy = engine
    change(policy, 5)
    servers.sync(policy, 20)
    own = build_policy(tmp_path)  # a different policy from the one the servers hold
    other = same_servers(servers, own, tmp_path, monkeypatch)
    assert other.version.endswith("-0") and other.replicas == 2 and check((other, own)) < 1e-4
    with pytest.raises(UserError, match=says("rollouts.engine.vllm_servers.max_length", "1000003 tokens")):
        other.generate([np.asarray([5, 6, 7], np.int32)], [1000000], [0])
    too_long, other.max_length = other.max_length, None
    assert too_long is not None
    with pytest.raises(UserError, match=says(f"{too_long} + 4 tokens", "status 400")):
        other.generate([np.full(too_long, 5, np.int32)], [4], [0])
    assert other.replicas == 2 and other.retried == 0
    assert check((servers, policy)) < 1e-4  # it takes the servers back
    assert servers.retried > 0
    stuck = other.servers[0]
    stuck.begin_update("broken off", 5.0)
    stuck.usable = False
    other.sync(own, 4)
    assert other.replicas == 1 and check((other, own)) < 1e-4
    assert "restart this server" in stuck.last_words()
    other.close()


def test_groups_stay_together_and_servers_get_equal_loads() -> None:
    contexts = [np.asarray([c], np.int32) for c in (1, 1, 2, 2, 3, 3, 4)]
    assert assign(range(7), contexts, [10, 10, 8, 8, 6, 6, 5], 2) == [[0, 1, 6], [2, 3, 4, 5]]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9)), min_size=1, max_size=30), st.integers(1, 4))
def test_every_sequence_is_sent_to_one_server(drawn: list[tuple[int, int]], num_servers: int) -> None:
    contexts = [np.asarray([context], np.int32) for context, _ in drawn]
    shares = assign(range(len(drawn)), contexts, [limit for _, limit in drawn], num_servers)
    assert sorted(i for share in shares for i in share) == list(range(len(drawn)))
    for context in range(6):
        assert sum(any(drawn[i][0] == context for i in share) for share in shares) <= 1
