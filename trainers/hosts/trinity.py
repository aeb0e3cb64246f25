"""Trinity-RFT 0.6 as a host: a task selector, named in Trinity's configuration.

    data_selector:
      selector_type: halfway.trainers.hosts.trinity.HalfwaySelector
      kwargs: {chain: chain.yaml, num_rollouts: 8, folder: runs/halfway}

It needs the operator `pass_rate_calculator` in `data_processor.experience_pipeline`. The operator reports only each
task's mean reward, so chains that need tokens are refused.
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from trinity.buffer.selector.selector import BaseSelector

from halfway.controllers.chains import from_yaml
from halfway.curriculum import Problem, ProblemSet, Rollout, UserError
from halfway.trainers.hosts.hosting import Host, Hosting, open_state, seal_state
from halfway.trainers.hosts.rows import Rows

Base: Any = BaseSelector
CLOSE = 1e-4
"""Largest distance of mean x rollouts from a whole number: Trinity may round means to single precision."""


class HalfwaySelector(Base):  # type: ignore[misc]
    """Chooses tasks by their index in the task set.

    Trinity reports one mean for a task that occurs twice in a batch; the successes are divided among its groups.
    """

    def __init__(self, data_source: Any, config: Any):
        super().__init__(data_source, config)
        options = config.kwargs
        for name in ("chain", "num_rollouts", "folder"):
            if name not in options:
                raise UserError(f"data_selector.kwargs.{name}: missing; set chain, num_rollouts and folder")
        # The rows stay in Trinity, so these problems have no features; a controller that needs features is refused.
        problems = ProblemSet([Problem(str(i), "", "") for i in range(data_source.dataset_size)])
        controller = from_yaml(options["chain"])
        folder = Path(options["folder"])
        host = Host(f"Trinity-RFT {version('trinity-rft')}")
        size = int(options["num_rollouts"])
        self.hosting = Hosting(controller, Rows(problems, None, ()), size, folder, host, int(config.seed))
        self._waiting: defaultdict[int, deque[list[str]]] = defaultdict(deque)  # place -> tickets of each batch
        self._begun = False
        self._steps = 0

    def get_indices(self, batch_size: int, return_extra_info: bool = False) -> list[int]:
        if not self._begun:
            self.hosting.begin()
            self._begun = True
        batch: defaultdict[int, list[str]] = defaultdict(list)
        places: list[int] = []
        for ticket in self.hosting.draw(batch_size):
            places.append(int(ticket.request.problem.id))
            batch[places[-1]].append(ticket.id)
        for place, tickets in batch.items():
            self._waiting[place].append(tickets)
        return places

    def feedback(self, indices: Sequence[int], values: Sequence[float]) -> None:
        size = self.hosting.session.num_rollouts
        for place, mean in zip(indices, values, strict=True):
            tickets = self._waiting[place].popleft() if self._waiting[place] else []
            passed = successes(float(mean), size * len(tickets)) if tickets else 0
            for i, ticket in enumerate(tickets):
                mine = share(passed, i, len(tickets))
                self.hosting.session.record(ticket, [Rollout((), success=number < mine) for number in range(size)])
        self.hosting.commit(self._steps)
        self._steps += 1

    def state_dict(self) -> dict[str, Any]:
        return {"current_index": 0, "halfway": seal_state({"hosting": self.hosting.state_dict(), "steps": self._steps})}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore a `state_dict`. Tickets that were in flight are lost, and offered again."""
        if "halfway" not in state_dict:
            return
        with open_state(state_dict["halfway"], f"{self.hosting.host.name}'s checkpoint") as state:
            self.hosting.load_state_dict(state["hosting"], reissue=True)
            self._waiting.clear()
            self._steps, self._begun = int(state["steps"]), True


def successes(mean: float, size: int) -> int:
    """Infer the number of successes from a mean of rewards of 0 and 1, with the fewest missing rollouts.

    The mean leaves out crashed episodes, which have no reward; here they count as failed rollouts.

    Args:
        size: number of requested rollouts.

    Raises:
        UserError: if no number of rollouts up to `size` can have that mean.
    """
    for number in range(size, 0, -1):
        passed = round(mean * number)
        if 0 <= passed <= number and abs(mean * number - passed) < CLOSE:
            return passed
    raise UserError(
        f"reward: a task's mean is {mean:.6g}, which rewards of 0 and 1 cannot have in {size} rollouts; give the "
        "chain a reward that is 1 for a success and 0 otherwise"
    )


def share(total: int, place: int, parts: int) -> int:
    """The size of part `place` of `parts` nearly equal parts of `total`; the first parts take the remainder."""
    return total // parts + (place < total % parts)
