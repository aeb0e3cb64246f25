"""The data set of verl's older trainers, 0.7 and 0.8, and of `trainer.use_v1=false` after that.

They hand it every batch once they have trained on it. The ticket travels in `extra_info`, the one column that all of
them keep beside the rollouts. They save a checkpoint before they hand the batch over, so that the state in data.pt
knows nothing of it; what the session is after the batch is therefore written beside the records, and taken from there.
"""

import json
from pathlib import Path
from typing import Any

from halfway.curriculum.session import Ticket
from halfway.curriculum.support.atomic import write_json
from halfway.trainers.hosts.outcomes import rollout_of
from halfway.trainers.hosts.rows import TICKET
from halfway.trainers.hosts.verl.late_rows import LateDataset
from halfway.trainers.hosts.verl.steering import Steering, named


class BatchEndDataset(LateDataset):
    """For `+halfway=batch_end`. Chooses and skips problems; prefixes would need the rollout workers of each version."""

    v1 = False
    _saved = False

    def _marked(self, row: dict[str, Any], ticket: Ticket) -> dict[str, Any]:
        return row | {"extra_info": {**(row.get("extra_info") or {}), TICKET: ticket.id}}

    def on_batch_end(self, batch: Any) -> None:
        """Give the session what came back. verl calls this after every step but the last."""
        assert self.steering is not None
        steered, columns = self.steering, batch.non_tensor_batch
        version = steered.hosting.session.step
        rewards = batch.batch["token_level_scores"].sum(-1).tolist()
        own_BT = batch.batch["response_mask"].bool()
        for i, (info, reward) in enumerate(zip(columns["extra_info"], rewards, strict=True)):
            told = {name: values[i] for name, values in columns.items()}
            success = steered.judge.success(named(told, steered.success) if steered.success else reward)
            tokens = batch.batch["responses"][i][own_BT[i]].tolist()
            done = None if success is None else rollout_of(tokens, success, reward, steered.ends, version)
            steered.hosting.record(info[TICKET], done)
        steered.abandon_all("failed")
        steered.commit(version)
        if self._saved:
            write_json(_after(steered, steered.hosting.session.step), super().state_dict())
            self._saved = False

    def state_dict(self) -> dict[str, Any]:
        if self.steering is not None:
            self._saved = True
            # Of an earlier run in the same folder: what is there later was written after this checkpoint.
            _after(self.steering, self.steering.hosting.session.step + 1).unlink(missing_ok=True)
        return super().state_dict()

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue after the batch that was trained on when the checkpoint was saved. If the run was killed between the
        two, what came back of it is lost, and counted."""
        if self.steering is None:
            return
        path = _after(self.steering, saved["hosting"]["session"]["step"] + 1)
        if path.exists():  # read first: loading cuts the records off
            super().load_state_dict(json.loads(path.read_text()))
            return
        super().load_state_dict(saved)
        self.steering.abandon_all("unsaved")


def _after(steered: Steering, commits: int) -> Path:
    """The file of the state after so many batches."""
    return steered.hosting.folder / f"after-{commits:08d}.json"
