"""Records a scripted agent's episodes, in tasks made from source distributions, into a file."""

import hashlib
import json
from base64 import b64decode, b64encode
from dataclasses import asdict, dataclass
from pathlib import Path

from halfway.curriculum.problems import Problem
from halfway.curriculum.repositories.archives import RepositoryArchives
from halfway.curriculum.repositories.environment import Repository
from halfway.curriculum.repositories.task import from_text
from halfway.curriculum.streams import Stream
from halfway.curriculum.support.atomic import write_json
from halfway.curriculum.support.errors import UserError
from halfway.curriculum.support.extras import one_line

ENVIRONMENT = Repository(max_turns=20, seconds=300, test_seconds=600)


@dataclass(frozen=True, slots=True)
class Step:
    """One command, and its outcome.

    Attributes:
        seen, state: observation and state, as in `StepResult`.
        saved: everything that has changed in the work tree and in /tmp.
    """

    command: str
    seen: str
    state: str
    saved: bytes

    @property
    def response(self) -> str:
        return response(self.command)


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded episode.

    Attributes:
        project: name and version of the source distribution.
        sha256: checksum of its archive.
        what: kind and file of the fault.
        steps: all steps before the submission.
        passed: the judge's verdict.
    """

    project: str
    sha256: str
    what: str
    problem: Problem
    steps: tuple[Step, ...]
    passed: bool


def response(command: str) -> str:
    return f"```bash\n{command}\n```\n"


def script(problem: Problem) -> list[str]:
    """The scripted agent's commands: it looks around, runs tests, leaves files of all kinds, and fixes the fault."""
    task = from_text(problem.answer, problem.id)
    path = str(problem.features["file"])
    return [
        "ls -la; find . -name '*.py' | head -20; git --version; date",
        f"grep -n 'def ' {path} | head -30; wc {path}; stat -c '%a %s %Y' {path}",
        f"python -m pytest -q -vv --durations=3 '{task.fail_to_pass[0]}' 2>&1 | tail -40",
        "printf 'import os, tempfile\\nprint(object(), {None, \"a\"}, os.getpid(), tempfile.mkdtemp())' > probe.py; "
        "python probe.py; python -c 'import probe'; (sleep 99 &)",
        f"chmod +x {path}; mv probe.py kept.py; mkdir -p notes/a; ln -s ../kept.py notes/a/link; echo note > /tmp/note",
        f"cat > /tmp/fault.diff <<'EOF'\n{task.bug}EOF\ngit apply -R /tmp/fault.diff && rm -r notes; ls -la",
        f"cat /tmp/note; sed -n 1,12p {path}; python -c 'import kept' 2>&1 | tail -3",
    ]


def record(environment: Repository, folder: Path, target: Path, tasks: int) -> None:
    """Record episodes in `tasks` tasks of each archive in a folder. An archive without a task is named and left out.

    Raises:
        UserError: if no archive has a task.
    """
    found: list[Recording] = []
    for path in sorted(folder.glob("*.tar.gz")):
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        source = RepositoryArchives({str(path): sha256}, seconds=environment.seconds, box=environment.box)
        try:
            problems = source.load(tasks, Stream(0)).problems
        except UserError as error:
            print(f"{path.name}: {error}", flush=True)
            continue
        for problem in problems:
            found.append(play(environment, path.name.removesuffix(".tar.gz"), sha256, problem))
            print(f"{found[-1].project}: {found[-1].what}, submitted: {found[-1].passed}", flush=True)
        write(target, found)
    if not found:
        raise UserError(f"{folder}: no .tar.gz in it has a task; see docs/repositories.md for some that have")


def play(environment: Repository, project: str, sha256: str, problem: Problem) -> Recording:
    """Play the scripted agent's episode on a problem, and record it."""
    (episode,) = environment.start([problem])
    steps = []
    for command in script(problem):
        (result,) = environment.step([episode], [response(command)])
        assert result.success is None and not result.lost, (project, command, result)
        episode = result.episode
        assert episode.saved is not None
        steps.append(Step(command, result.observation, result.state, episode.saved))
    (last,) = environment.step([episode], [response("submit")])
    what = f"{problem.features['kind']} in {problem.features['file']}"
    return Recording(project, sha256, what, problem, tuple(steps), bool(last.success))


def write(path: Path, recordings: list[Recording]) -> None:
    lines = []
    for each in recordings:
        steps = [{**asdict(step), "saved": b64encode(step.saved).decode()} for step in each.steps]
        problem = {"id": each.problem.id, "prompt": each.problem.prompt, "answer": each.problem.answer}
        facts = {"project": each.project, "sha256": each.sha256, "what": each.what, "passed": each.passed}
        lines.append({**facts, "problem": problem, "steps": steps})
    write_json(path, lines)


def read(path: Path) -> list[Recording]:
    """Read what `record` wrote. Raises UserError if it is something else."""
    try:
        lines = json.loads(path.read_text())
        return [
            Recording(
                line["project"],
                line["sha256"],
                line["what"],
                Problem(**line["problem"]),
                tuple(Step(**{**step, "saved": b64decode(step["saved"])}) for step in line["steps"]),
                line["passed"],
            )
            for line in lines
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: no episodes ({one_line(error)}); make them with `record`") from error
