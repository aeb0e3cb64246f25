"""SkyRL 0.4 as a host: a data set and a generator, which you return from two methods of your experiment.

    class Experiment(BasePPOExp):
        def get_train_dataset(self):
            self.prompts = SessionPrompts(super().get_train_dataset(), chain, self.cfg)
            return self.prompts

        def get_generator(self, *given):
            return self.prompts.observing(super().get_generator(*given))

Nothing of SkyRL is imported: both wrap SkyRL's own objects. The ticket's id is the row's uid, which SkyRL passes to the
generator as a trajectory's `instance_id`, so groups are recorded before dynamic sampling drops any. SkyRL's loader
saves the data set's state in data.pt.
"""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from halfway.curriculum.controller import PassRateController
from halfway.curriculum.support.errors import UserError, require
from halfway.trainers.hosts.fetching import Fetching
from halfway.trainers.hosts.hosting import RECORDS, Host, Hosting
from halfway.trainers.hosts.outcomes import Judge, rollout_of
from halfway.trainers.hosts.rows import Columns, rows_of


class SessionPrompts:
    """SkyRL's prompts in the order of the session's tickets; indices from the loader's sampler are ignored."""

    def __init__(
        self,
        prompts: Any,
        controller: PassRateController[Any],
        cfg: Any,
        threshold: float | None = None,
        folder: str | Path | None = None,
    ):
        """
        Args:
            prompts: SkyRL's `PromptDataset`.
            cfg: SkyRL's settings.
            threshold: lowest total reward that counts as a success; None = total rewards are 0 or 1.
            folder: where records are written; None = the folder `halfway` beside the checkpoints.

        Raises:
            UserError: if a setting cannot work, or a controller needs more than rewards.
        """
        workers = cfg.data.dataloader.num_workers
        name = "data.dataloader.num_workers"
        require(workers == 0, name, workers, "give 0: a worker would ask a copy of the chain")
        stepwise = cfg.generator.step_wise_trajectories
        require(not stepwise, "generator.step_wise_trajectories", stepwise, "give false: a rollout must be one row")
        self.prompts, self.judge = prompts, Judge("total reward", threshold)
        rows = rows_of(prompts.dataframe, controller, Columns(prompt=prompts.prompt_key))
        where = Path(folder) if folder is not None else Path(cfg.trainer.ckpt_path) / RECORDS
        where.mkdir(parents=True, exist_ok=True)
        host, size = Host(f"SkyRL {version('skyrl')}"), int(cfg.generator.n_samples_per_prompt)
        hosting = Hosting(controller, rows, size, where, host, int(cfg.trainer.seed))
        self.fetching = Fetching(hosting, int(cfg.trainer.train_batch_size))

    def __len__(self) -> int:
        return len(self.prompts)

    def __getitem__(self, index: int) -> tuple[Any, Any, Any, str]:
        ticket = self.fetching.next_ticket()
        messages, env_class, extras, _ = self.prompts[self.fetching.place(ticket)]
        return messages, env_class, extras, ticket.id

    def collate_fn(self, items: Sequence[Any]) -> Any:
        return self.prompts.collate_fn(items)

    def observing(self, generator: Any) -> "ObservedGenerator":
        """The generator, wrapped so that the session records the training rollouts it returns."""
        return ObservedGenerator(generator, self)

    def observe(self, given: Mapping[str, Any], output: Mapping[str, Any]) -> dict[str, float]:
        """Record and commit the rollouts of one call of the generator, and return the chain's metrics.

        Args:
            given: the batch that the generator was called with.
            output: what it returned for that batch.
        """
        hosting, columns = self.fetching.hosting, (output["rewards"], output["response_ids"], output["loss_masks"])
        step = max(0, given["batch_metadata"].global_step - 1)
        stops = output.get("stop_reasons") or ["stop"] * len(output["rewards"])
        for one, reward, ids, mask, stop in zip(given["trajectory_ids"], *columns, stops, strict=True):
            total = float(sum(reward)) if isinstance(reward, Sequence) else float(reward)
            tokens = [token for token, own in zip(ids, mask, strict=True) if own]
            success = self.judge.success(total)
            ends = () if stop == "length" else tokens[-1:]
            done = None if success is None else rollout_of(tokens, success, total, ends, step)
            hosting.record(one.instance_id, done)
        # SkyRL trims a batch until its ranks divide it; the trimmed rows never come back.
        self.fetching.abandon_all("cut off")
        self.fetching.commit(step)
        return hosting.metrics()

    def state_dict(self) -> dict[str, Any]:
        return self.fetching.state_dict()

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        self.fetching.load_state_dict(saved)


class ObservedGenerator:
    """A generator (SkyRL's or the user's) whose training rollouts are recorded in the session."""

    def __init__(self, inner: Any, prompts: SessionPrompts):
        self.inner, self.prompts = inner, prompts
        self._running = False

    async def generate(self, input_batch: Any, **options: Any) -> Any:
        if input_batch["batch_metadata"].training_phase != "train":
            return await self.inner.generate(input_batch, **options)
        if self._running:
            raise UserError("trainer: generates groups side by side; give SkyRL's synchronous trainer, or another host")
        self._running = True
        try:
            output = await self.inner.generate(input_batch, **options)
        finally:
            self._running = False
        metrics = self.prompts.observe(input_batch, output)
        output["rollout_metrics"] = {**(output.get("rollout_metrics") or {}), **metrics}
        return output

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)
