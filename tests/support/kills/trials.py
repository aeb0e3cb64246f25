"""One run, disturbed several times, and its outcome."""

import random
import re
import resource
import shutil
import time
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from halfway.curriculum.support.atomic import read_json
from kills import ends
from kills.cluster import the_cluster
from kills.faults import Fault, action, count_operations, draw, tear
from kills.launches import Launch, kill
from kills.server import await_server, the_server
from kills.setups import ON_RAY, RECIPES, SERVED, SETUPS, STEPS, write

MOST_FAULTS = 6
TORN_SHARE = 0.6
REFUSED, STOPPED, TERMINATED, ABORTED = 2, 143, -15, -6
VICTIMS = {
    "waiting": ("learner", "judge", "tree"),
    "lockstep": ("learner", "sampler", "judge", "tree"),
    "in flight": ("learner", "sampler", "judge", "tree"),
    "two ranks": ("learner", "rank", "judge", "tree"),
    "vLLM server": ("learner", "sampler", "judge", "tree", "server"),
    "lockstep, Ray": ("sampler", "node"),
    "vLLM server, Ray": ("learner", "sampler", "node", "tree", "server"),
}
NOTICE_SECONDS = 5.0
SAME = "same"


class FailedError(Exception):
    """Something that a run must not do; the first word says of which kind it is."""


@dataclass
class Undisturbed:
    """A run of a set-up and recipe that nothing disturbs.

    Attributes:
        folder: for it and those that are compared with it.
    """

    folder: Path
    setup: str
    recipe: str

    @cached_property
    def measured(self) -> tuple[dict[str, Any], float, int]:
        """Its end, its seconds, and its operations on files."""
        began = time.monotonic()
        trial = Trial(self, self.folder / "undisturbed", random.Random(0))
        trial.launch(None)
        seconds = time.monotonic() - began
        wrong = trial.wrong_in_flight() if not (SETUPS | SERVED | ON_RAY)[self.setup].exact else ""
        assert not wrong, wrong
        return ends.final_state(trial.run), seconds, int((trial.folder / "operations").read_text())


class Trial:
    """One run that is disturbed."""

    def __init__(self, reference: Undisturbed, folder: Path, chance: random.Random, spawned: float = 0.0):
        self.reference, self.folder, self.chance, self.spawned = reference, folder, chance, spawned
        self.setup, self.run = (SETUPS | SERVED | ON_RAY)[reference.setup], folder / "run"
        self.launches = 0
        self.config = write(folder, self.setup, RECIPES[reference.recipe])

    @property
    def left(self) -> float:
        """The share of the run that is still to come."""
        saved = [int(path.name.removeprefix("step-")) for path in (self.run / "checkpoints").glob("step-*")]
        return 1 - max(saved, default=0) / STEPS

    def finished(self) -> bool:
        return read_json(self.run / "status.json").get("state") == "finished"

    def disturbed(self, faults: list[Fault]) -> list[dict[str, Any]]:
        """Launch it once for each fault, and then in peace; what happened each time."""
        told = []
        for fault in faults:
            if self.finished():
                break
            told.append(self.launch(fault))
        if not self.finished():
            self.launch(None)
        if (
            wrong := ends.different(self.run, self.reference.measured[0])
            if self.setup.exact
            else self.wrong_in_flight()
        ):
            raise FailedError(f"different: {wrong}")
        return told

    def launch(self, fault: Fault | None) -> dict[str, Any]:
        """Launch it, disturb it, wait until it has ended, and look at what it left."""
        self.launches += 1
        output, share = self.folder / f"launch-{self.launches}.txt", 0.2 + 0.8 * self.left
        output.touch()  # it may be killed before it opens the file
        _, seconds, operations = self.reference.measured if fault else ({}, 0.0, 0)
        due = max(1, round((fault.at if fault else 0.0) * share * operations))
        act, counted = action(fault, due), self.folder / "operations"

        def count(number: int, event: str) -> None:
            if fault is None:
                counted.write_text(str(number))
            act(number, event)

        resumes = (self.run / "config.yaml").exists() and self.chance.random() < 0.5
        words = ["resume", str(self.run)] if resumes else ["run", str(self.config)]
        spawned = self.setup.rollouts.get("staleness", 0) > 0 and self.chance.random() < self.spawned
        if self.setup.served:
            await_server()
        if self.setup.on_ray:
            the_cluster()
        launch = Launch(
            [*words, "--quiet"],
            self.folder,
            output,
            self.setup.ranks,
            spawned,
            lambda: count_operations(self.run, count),
        )
        try:
            victim = self.strike(launch, fault, seconds * share) if fault else ""
            launch.wait(self.setup.patience, until=lambda: bool(launch.codes))
            if not launch.wait(NOTICE_SECONDS):
                launch.terminate()  # as torchrun does: a rank may still be waiting for the other to begin
            if not launch.wait(self.setup.patience):
                raise FailedError(f"late: {fault} {_end(output)}")
            said, orphans = output.read_text(errors="replace"), launch.orphans()
        finally:
            kill(launch.victims()["tree"])
            launch.wait(10)
        code = launch.code
        if orphans:
            raise FailedError(f"orphans: {orphans} after {fault}")
        if "Traceback" in said:
            raise FailedError(f"traceback: {fault} {_end(output)}")
        killed = code == -9
        if fault is None and (code or not self.finished()):
            raise FailedError(f"refused: {code} {_end(output)}")
        expected = {0, REFUSED, STOPPED} if fault is None or fault.kind != "stop" else {0, STOPPED, TERMINATED}
        if self.setup.ranks > 1:
            expected |= {REFUSED, TERMINATED, ABORTED}  # gloo's own threads may abort a process whose peer has died
        if not killed and code not in expected:
            raise FailedError(f"code: {code} after {fault} {_end(output)}")
        torn = tear(self.run, self.chance) if killed and self.run.exists() and self.chance.random() < TORN_SHARE else 0
        return {
            **(asdict(fault) if fault else {}),
            "hit": victim,
            "code": code,
            "left": round(self.left, 2),
            "torn": torn,
        }

    def strike(self, launch: Launch, fault: Fault, seconds: float) -> str:
        """Disturb a launch from outside, when it is time. Returns who was hit: "" = it had ended before."""
        if fault.kind in ("file", "full", "limit"):
            launch.wait(self.setup.patience, until=lambda: launch.pids[0] in launch.codes)
            return "" if launch.code == 0 else "learner"
        launch.wait(fault.at * seconds)
        if fault.kind == "stop":
            pids = [pid for pid in launch.pids if pid not in launch.codes]
            launch.terminate()
            launch.wait(fault.size)
            kill(launch.victims()["tree"])
            return "tree" if pids else ""
        if fault.victim == "server" and not launch.ended():
            the_server().start()
            return "server"
        if fault.victim == "node" and not launch.ended():
            the_cluster().replace_node()
            return "node"
        while not launch.ended():
            found = (
                the_cluster().actors()
                if self.setup.on_ray and fault.victim == "sampler"
                else launch.victims()[fault.victim]
            )
            if found:
                kill(found if fault.victim == "tree" else [self.chance.choice(found)])
                return fault.victim
            launch.wait(0.01)
        return ""

    def wrong_in_flight(self) -> str:
        """What the logs of a run in flight lack."""
        if wrong := ends.unsound(self.run, STEPS):
            return wrong
        output = self.folder / "retraced.txt"
        launch = Launch(["retrace", str(self.run)], self.folder, output, 1, False, lambda: None)
        launch.wait(self.setup.patience)
        said = output.read_text()
        return (
            "" if re.search(rf"\b{STEPS} steps, \d+ decisions, all as in the log", said) else f"retraced: {said[-500:]}"
        )


def _end(output: Path) -> str:
    return output.read_text(errors="replace")[-1500:]


def tried(reference: Undisturbed, number: int, seed: int, spawned: float) -> dict[str, Any]:
    """Disturb one run. Its folder is left if it failed."""
    chance = random.Random(f"{seed} {reference.setup} {reference.recipe} {number}")
    judged = RECIPES[reference.recipe].verifier == "judged_coin"
    victims = [one for one in VICTIMS[reference.setup] if one != "judge" or judged]
    faults = [draw(chance, victims) for _ in range(chance.randint(1, MOST_FAULTS if "learner" in victims else 2))]
    folder = reference.folder / f"trial-{number}"
    began, used, trial = time.monotonic(), processor_seconds(), Trial(reference, folder, chance, spawned)
    told, outcome, why = [], SAME, ""
    try:
        told = trial.disturbed(faults)
    except FailedError as failed:
        outcome, _, why = str(failed).partition(": ")
    else:
        shutil.rmtree(folder)
    return {
        "setup": reference.setup,
        "recipe": reference.recipe,
        "number": number,
        "seed": seed,
        "faults": told,
        "launches": trial.launches,
        "outcome": outcome,
        **({"why": why, "planned": [asdict(fault) for fault in faults]} if why else {}),
        "seconds": round(time.monotonic() - began, 1),
        "processor": round(processor_seconds() - used, 1),
    }


def processor_seconds() -> float:
    """Of all processes below this one that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
