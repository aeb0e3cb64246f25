"""Answers of others: a policy's texts, vLLM's servers, trackers."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from strangers.kinds import Kind

# ---------------------------------------------------------------- responses


def problems() -> dict[str, Any]:
    """A problem for every verifier."""
    from halfway.curriculum import Problem, Stream
    from halfway.curriculum.boxes.sandbox import Result
    from halfway.curriculum.registries import SOURCES
    from halfway.curriculum.tasks.verifiers.function_induction import Reference

    found = {name: Problem("p", "?", "1/2", "test", name) for name in ("exact", "numeric", "symbolic")}
    reference = Reference(1.0, ("(1,)",), (Result("1", "1").key,)).as_text()
    found["function_induction"] = Problem("p", "?", reference, "test", "function_induction")
    sources = {"running_sums": {}, "operator_sheets": {}, "reasoning_gym": {"family": "leg_counting"}}
    for name, options in sources.items():
        found[name] = SOURCES.get(name)(**options).load(1, Stream(0)).problems[0]
    return found


RESPONSES = {  # empty: the problem's own answer
    "exact": "1/2",
    "numeric": "So 3.25e4 - x = \\boxed{1/2}, or 1,000.50.",
    "symbolic": "Hence \\[x = \\frac{\\sqrt{2}}{2\\sqrt{2}}\\] and \\boxed{\\frac{1}{2}}",
    "function_induction": "```python\ndef f(x):\n    return x\n```",
    "reasoning_gym": "<answer>[1, 2]</answer>",
    "running_sums": "",
    "operator_sheets": "",
}


def make_response(verifier: str, folder: Path) -> None:
    (folder / "response.txt").write_text(RESPONSES[verifier] or problems()[verifier].answer)


def read_response(verifier: str, folder: Path) -> Any:
    from halfway.curriculum.tasks.verifiers.verify import verify

    text = (folder / "response.txt").read_bytes().decode("utf-8", "replace")
    verdict = verify(problems()[verifier], text)
    assert verdict in (True, False)
    return verdict


# ---------------------------------------------------------------- vLLM's servers

GENERATED = {
    "choices": [
        {
            "token_ids": [1, 2, 3],
            "finish_reason": "stop",
            "logprobs": {"content": [{"logprob": -1.0}, {"logprob": -0.5}, {"logprob": -2.0}]},
            "weight_versions": [{"version": "run-3", "start": 0, "end": 2}, {"version": "run-4", "start": 2, "end": 3}],
        }
    ]
}


def make_answers(folder: Path) -> None:
    for name, value in {
        "generate": GENERATED,
        "models": {"object": "list", "data": [{"id": "m", "max_model_len": 128}]},
        "weight_info": {"weight_version": "run-3"},
        "reset": {"success": True},
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(value))


def read_answers(folder: Path) -> Any:
    """The answers of one server as the engine reads them. A `ServerError` counts the server as lost."""
    from halfway.curriculum import UserError
    from halfway.trainers.engines.vllm_servers.server import protocol

    found: list[Any] = []
    try:
        for name, kind in (("models", protocol.Models), ("weight_info", protocol.Held), ("reset", protocol.Emptied)):
            content = (folder / f"{name}.json").read_bytes()
            found.append(protocol.read(name, protocol.decode(name, content), kind))
        generated = protocol.decode("here", (folder / "generate.json").read_bytes(), protocol.Generated)
        [choice] = protocol.read("here", generated, protocol.Generated).choices
        protocol.require_version("here", choice, "run-3", True)
        found.append(repr(protocol.completion("here", choice, 4, 100)))
    except protocol.ServerError as error:
        raise UserError(str(error)) from error
    return found


def make_http(folder: Path) -> None:
    body = json.dumps({"choices": [{**GENERATED["choices"][0], "weight_versions": [{"version": "run-3"}]}]})
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    (folder / "answer.http").write_bytes((head + body).encode())


def read_http(folder: Path) -> Any:
    """One sampled sequence, through the engine's own client."""
    import numpy as np

    from halfway.curriculum import UserError
    from halfway.trainers.engines.vllm_servers.load_balancing import Client, Errand
    from halfway.trainers.engines.vllm_servers.server import connection
    from halfway.trainers.engines.vllm_servers.server.server import Server

    vars(connection)["PATIENCE"] = 1
    content = (folder / "answer.http").read_bytes()

    def serve() -> None:
        while True:
            with suppress(OSError):
                one, _ = listener.accept()
                with one:
                    one.recv(1 << 16)
                    one.sendall(content)
                continue
            return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        server = Server(f"127.0.0.1:{listener.getsockname()[1]}", usable=True, vocabulary=100)
        found: list[Any] = []
        errand = Errand(0, server, np.asarray([5], np.int32), {"max_tokens": 4})
        failed = Client(1, 0.2).run([errand], "run-3", lambda _, done: found.append(repr(done)))
    if server in failed:
        raise UserError(str(failed[server]))
    return found


# ---------------------------------------------------------------- trackers


def make_mlflow(folder: Path) -> None:
    """What MLflow's server answers to the requests of a run, by the end of their paths."""
    info = {
        **{"run_id": "0123456789abcdef", "run_uuid": "0123456789abcdef", "experiment_id": "1", "status": "RUNNING"},
        **{"start_time": 1, "artifact_uri": "mlflow-artifacts:/1/x/artifacts", "lifecycle_stage": "active"},
    }
    run = {"info": info, "data": {"metrics": [], "params": [], "tags": []}, "inputs": {}}
    for name, value in {
        "get-by-name": {"experiment": {"experiment_id": "1", "name": "halfway", "lifecycle_stage": "active"}},
        "create": {"run": run},
        "get": {"run": run},
        "update": {"run_info": info},
        "log-batch": {},
        "note": {"run_id": "0123456789abcdef", "complete": False, "step": 0, "evaluation": -1},
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(value))


@contextmanager
def answering(folder: Path) -> Iterator[str]:
    """An address where these answers are given."""

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = folder / f"{self.path.partition('?')[0].rpartition('/')[2]}.json"
            body = path.read_bytes() if path.exists() else b"{}"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PATCH = do_PUT = do_GET

        def log_message(self, *arguments: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def read_mlflow(folder: Path) -> Any:
    """A run's copy to a server with these answers; whatever they are, it ends."""
    from tracked_runs import RAW, record

    from halfway.experiments.config.run import parse_run_config
    from halfway.experiments.tracking import recording
    from halfway.experiments.tracking.mlflow_store import Mlflow

    vars(recording)["time"] = SimpleNamespace(sleep=lambda seconds: None, monotonic=lambda: 0.0, time=lambda: 0.0)
    os.environ.update(HALFWAY_ACCEPT="tracking:127.0.0.1", MLFLOW_HTTP_REQUEST_MAX_RETRIES="0")
    with answering(folder) as uri:
        config = parse_run_config({**RAW, "tracking": {"uri": uri}})
        opened = Mlflow.open(config.tracking, folder)
        if opened is None:
            return "not tracked"
        opened.note(folder).write_bytes((folder / "note.json").read_bytes())
        copy = opened.run(config, folder)
        copy.step(record(1))
        copy.close("finished")
        return len(copy.unsent), opened.note(folder).read_text()


def make_database(folder: Path) -> None:
    _copied(folder)


def read_database(folder: Path) -> Any:
    """As a run does that finds MLflow's file in the folder `output`."""
    return _copied(folder)


def _copied(folder: Path) -> Any:
    from tracked_runs import RAW, record

    from halfway.experiments.config.run import parse_run_config
    from halfway.experiments.tracking import recording
    from halfway.experiments.tracking.mlflow_store import Mlflow

    vars(recording)["time"] = SimpleNamespace(sleep=lambda seconds: None, monotonic=lambda: 0.0, time=lambda: 0.0)
    config = parse_run_config({**RAW, "tracking": {"mlflow": True}})
    opened = Mlflow.open(config.tracking, folder)
    if opened is None:
        return "not tracked"
    (folder / "run").mkdir(exist_ok=True)
    copy = opened.run(config, folder / "run")
    copy.step(record(1))
    copy.close("finished")
    return len(copy.unsent)


def database_files(folder: Path) -> list[Path]:
    return [folder / "mlflow.db"]


def make_stepped(folder: Path) -> None:
    (folder / "run.json").write_text(json.dumps({"id": "abc", "name": "run", "url": "https://x"}))
    (folder / "note.json").write_text(json.dumps({"run_id": "abc", "complete": False, "step": 0, "evaluation": -1}))


def read_stepped(name: str, folder: Path) -> Any:
    """As `read_mlflow`, where the tracker's package says what its server has answered."""
    from tracked_runs import RAW, record

    from halfway.experiments.config.run import parse_run_config
    from halfway.experiments.tracking import recording, stepped_stores

    vars(recording)["time"] = SimpleNamespace(sleep=lambda seconds: None, monotonic=lambda: 0.0, time=lambda: 0.0)

    def init(**options: Any) -> Any:
        answer = json.loads((folder / "run.json").read_bytes())
        return SimpleNamespace(**answer, log=lambda *a, **k: None, finish=lambda **k: None)

    config = parse_run_config({**RAW, "tracking": {"mlflow": False, name: True}})
    opened = {"wandb": stepped_stores.Wandb, "trackio": stepped_stores.Trackio}[name]("halfway", folder)
    vars(opened)[name] = SimpleNamespace(init=init, Settings=lambda **k: None)
    opened.note(folder).write_bytes((folder / "note.json").read_bytes())
    copy = opened.run(config, folder)
    copy.step(record(1))
    copy.close("finished")
    return len(copy.unsent), opened.note(folder).read_text()


SERVICES: dict[str, Kind] = {
    **{f"response, {name}": Kind(partial(make_response, name), partial(read_response, name)) for name in RESPONSES},
    "vLLM's answers": Kind(make_answers, read_answers),
    "vLLM's answer over HTTP": Kind(make_http, read_http),
    "MLflow's answers": Kind(make_mlflow, read_mlflow),
    "MLflow's database": Kind(make_database, read_database, database_files, binary=True, share=0.3),
    "W&B's answers": Kind(make_stepped, partial(read_stepped, "wandb")),
    "Trackio's answers": Kind(make_stepped, partial(read_stepped, "trackio")),
}
