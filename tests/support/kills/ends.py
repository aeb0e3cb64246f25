"""The required end of a killed run."""

import json
from pathlib import Path
from typing import Any

CLOCKS = {"seconds", "tool_seconds", "judge_seconds", "wall_seconds", "log_sizes"}


def timeless(value: Any) -> Any:
    """The same value without seconds, and without the sizes of files that hold seconds."""
    if isinstance(value, dict):
        return {name: timeless(entry) for name, entry in value.items() if name not in CLOCKS}
    return [timeless(entry) for entry in value] if isinstance(value, list) else value


def records(path: Path) -> list[Any]:
    """The lines of a log."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def final_state(folder: Path) -> dict[str, Any]:
    """Everything that must be equal: all that does not depend on the time."""
    last = max((folder / "checkpoints").glob("step-*"))
    files = {path.relative_to(last): path.read_bytes() for path in last.rglob("*") if path.is_file()}
    loop = json.loads(files.pop(Path("loop.json")))
    files.pop(Path("manifest.txt"))  # it holds the checksum of loop.json
    return {
        "decisions": (folder / "decisions.jsonl").read_bytes(),
        "evaluations": [timeless(each) for each in records(folder / "evaluations.jsonl")],
        "loop": timeless(loop),
        "files": files,
    }


def different(folder: Path, wanted: dict[str, Any]) -> str:
    """What differs from the undisturbed run; empty if nothing does."""
    found = final_state(folder)
    names = [name for name in ("decisions", "evaluations", "loop") if found[name] != wanted[name]]
    ours, theirs = found["files"], wanted["files"]
    names += [str(path) for path in sorted(ours.keys() | theirs.keys()) if ours.get(path) != theirs.get(path)]
    return ", ".join(names)


def unsound(folder: Path, steps: int) -> str:
    """What is wrong with the event log of a run in flight: something drawn or observed twice, or lost; empty = nothing.

    Whether every decision can be made again is for `halfway retrace` to say.
    """
    events = records(folder / "events.jsonl")
    drawn = [ticket for event in events if event["event"] == "draw" for ticket, _, _ in event["tickets"]]
    done = [event["ticket"] for event in events if event["event"] == "done"]
    last = max((folder / "checkpoints").glob("step-*"))
    waiting = json.loads((last / "loop.json").read_text())["waiting"]
    draws = [origin for event in events if event["event"] == "draw" for _, _, origin in event["tickets"]]
    under_way = len(waiting) - sum(map(is_stored, waiting)) + draws.count("stored")  # those are never observed anew
    wrong = {
        "drawn twice": len(set(drawn)) < len(drawn),
        "observed twice": len(set(done)) < len(done),
        "observed and never drawn": not set(done) <= set(drawn),
        "lost": len(drawn) - len(done) != under_way,
        "commits": [event["step"] for event in events if event["event"] == "commit"] != list(range(steps)),
        "steps": [each["step"] for each in records(folder / "steps.jsonl")] != list(range(steps)),
    }
    return ", ".join(name for name, it_is in wrong.items() if it_is)


def is_stored(group: Any) -> bool:
    """Whether an outstanding group, as a checkpoint holds it, is one on which the run trains again."""
    return bool(group["request"].get("stored"))
