"""The data set for verl's older trainers: those of 0.7 and 0.8, and later ones with `trainer.use_v1=false`.

These trainers hand every batch to the data set once they have trained on it. The ticket is stored in `extra_info`, the
one column that all of them keep beside the rollouts. They save a checkpoint before they hand the batch over, so the
state in data.pt does not include the batch. The session's state after the batch is therefore written beside the
records, and read from there when the run is resumed.
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
    """The data set of `+halfway=batch_end`. Chains can choose and skip problems, but not attach prefixes or hints."""

    v1 = False
    _saved = False

    def _marked(self, row: dict[str, Any], ticket: Ticket) -> dict[str, Any]:
        return row | {"extra_info": {**(row.get("extra_info") or {}), TICKET: ticket.id}}

    def on_batch_end(self, batch: Any) -> None:
        """Record a batch's rollouts and commit. verl calls this after every step except the last."""
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
            # A file left by an earlier run in this folder must not pass for the state after this checkpoint.
            _after(self.steering, self.steering.hosting.session.step + 1).unlink(missing_ok=True)
        return super().state_dict()

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue after the batch that had just been trained on when the checkpoint was saved.

        If the run was killed before that batch was handed over, its rollouts are counted as lost ("unsaved").
        """
        if self.steering is None:
            return
        path = _after(self.steering, saved["hosting"]["session"]["step"] + 1)
        if path.exists():  # loading `saved` first would cut off the records of this batch
            super().load_state_dict(json.loads(path.read_text()))
            return
        super().load_state_dict(saved)
        self.steering.abandon_all("unsaved")


def _after(steered: Steering, commits: int) -> Path:
    """The file that holds the state after `commits` batches."""
    return steered.hosting.folder / f"after-{commits:08d}.json"
