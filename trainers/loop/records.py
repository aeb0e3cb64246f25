"""The run's own log files: append-only JSON lines that a resumed run continues exactly where its checkpoint was."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from halfway.curriculum.support.atomic import writing


class JsonLines:
    """An append-only file of JSON records whose size is part of the checkpoint."""

    def __init__(self, path: Path):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self.path.stat().st_size

    def append(self, *records: Mapping[str, Any]) -> None:
        """Write records at the end, one write call for all of them. Raises WriteError if that fails."""
        with writing(self.path), self.path.open("a") as file:
            file.write("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records))

    def truncate(self, size: int) -> None:
        """Forget what a killed run wrote after its last checkpoint."""
        os.truncate(self.path, size)


class RunLog:
    """The three record files of a run directory, kept together so that they are cut together."""

    def __init__(self, folder: Path):
        self.decisions = JsonLines(folder / "decisions.jsonl")
        self.steps = JsonLines(folder / "steps.jsonl")
        self.evaluations = JsonLines(folder / "evaluations.jsonl")

    def sizes(self) -> dict[str, int]:
        return {name: file.size for name, file in vars(self).items()}

    def truncate(self, sizes: Mapping[str, int] | None = None) -> None:
        """Cut every file to its checkpointed size, or to nothing if there is no checkpoint yet."""
        for name, file in vars(self).items():
            file.truncate(sizes[name] if sizes else 0)
