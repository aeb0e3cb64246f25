import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from messages import says
from transformers import Qwen3ForCausalLM

from halfway.curriculum import UserError
from halfway.trainers.propel.probes import activations
from halfway.trainers.propel.probes.activations import (
    POOLINGS,
    ActivationStore,
    Reading,
    extract,
    hidden_states,
    model_fingerprint,
    read,
)
from halfway.trainers.propel.probes.fitting import fit
from halfway.trainers.propel.probes.heads import Probe, Site, load_probe, save_probe
from halfway.trainers.propel.probes.probe_options import ActivationOptions, ProbeTraining, SplitOptions, SweepOptions
from halfway.trainers.propel.probes.scores import (
    Scores,
    balanced_accuracy_gain,
    balanced_accuracy_interval,
    best_temperature,
    calibration_error,
    score,
)
from halfway.trainers.propel.probes.splits import RowSplit, downsample, random_split
from halfway.trainers.propel.probes.surface import lookups
from halfway.trainers.propel.probes.sweep import (
    Cell,
    LabelledRows,
    choose,
    ensemble,
    permuted_control,
    read_cells,
    sweep,
)

OPTIONS = ActivationOptions(layers=(0, 1), poolings=("last_token", "mean_full"))


def readings(num: int, seed: int = 0, context: int = 2) -> list[Reading]:
    rng = np.random.default_rng(seed)
    found = []
    for i in range(num):
        tokens_T = rng.integers(3, 30, context + int(rng.integers(2, 12))).astype(np.int32)
        found.append(Reading(f"task-{i}", tokens_T, context))
    return found


# Reading the model.


def test_a_layer_is_the_output_of_its_block(tiny_model: Qwen3ForCausalLM) -> None:
    tokens_BT = torch.tensor([[4, 5, 6, 7]])
    found = hidden_states(tiny_model, tokens_BT, torch.ones_like(tokens_BT), (0, 1))
    with torch.no_grad():
        told = tiny_model(input_ids=tokens_BT, output_hidden_states=True).hidden_states
        last_normed = tiny_model.model.norm(found[1])
    assert torch.allclose(found[0], told[1], atol=1e-6)  # told[0] is the embedding
    assert torch.allclose(last_normed, told[2], atol=1e-6)  # the last comes after the final norm


def test_deeper_blocks_do_not_run(tiny_model: Qwen3ForCausalLM) -> None:
    ran = []
    for number, block in enumerate(tiny_model.model.layers):
        block.register_forward_hook(lambda *_, number=number: ran.append(number))
    hidden_states(tiny_model, torch.tensor([[4, 5]]), torch.ones(1, 2, dtype=torch.long), (0,))
    assert ran == [0]
    tiny_model(input_ids=torch.tensor([[4, 5]]))  # the hooks are gone, the model is whole
    assert ran == [0, 0, 1]


def test_a_vector_depends_on_its_own_task_only(tiny_model: Qwen3ForCausalLM) -> None:
    several = readings(7)
    together = read(tiny_model, several, OPTIONS)
    alone = read(tiny_model, several[3:4], OPTIONS)
    for key, features_ND in together.items():
        assert np.allclose(features_ND[3], alone[key][0], rtol=1e-4, atol=1e-4)
        assert not np.allclose(features_ND[3], features_ND[4], atol=1e-2)


def test_pooling_sees_what_was_written_and_not_its_context(tiny_model: Qwen3ForCausalLM) -> None:
    one = readings(1, context=3)[0]
    tokens_BT = torch.as_tensor(one.tokens_T, dtype=torch.long)[None]
    states_TD = hidden_states(tiny_model, tokens_BT, torch.ones_like(tokens_BT), (1,))[1][0]
    found = read(tiny_model, [one], OPTIONS)
    assert np.allclose(found[1, "mean_full"][0], states_TD[3:].mean(0), atol=1e-6)
    assert np.allclose(found[1, "last_token"][0], states_TD[-1], atol=1e-6)


def test_poolings_by_hand() -> None:
    rows_ND = torch.tensor([[0.0, 8.0], [2.0, 6.0], [4.0, 1.0], [6.0, 5.0]])
    expected = {
        "last_token": [6.0, 5.0],
        "mean_full": [3.0, 5.0],
        "mean_last_50": [3.0, 5.0],
    }
    for name, pool in POOLINGS.items():
        assert np.allclose(pool(rows_ND), expected[name]), name
    long_ND = torch.arange(60.0)[:, None]
    assert POOLINGS["mean_last_50"](long_ND).item() == pytest.approx(34.5)  # of 10 to 59


def test_a_reading_that_is_too_long_loses_its_beginning(tiny_model: Qwen3ForCausalLM) -> None:
    tokens_T = np.arange(3, 13, dtype=np.int32)
    whole = Reading("a", tokens_T, 2)
    cut = replace(OPTIONS, max_tokens=6)
    end = Reading("b", tokens_T[4:], 0)
    assert np.allclose(read(tiny_model, [whole], cut)[0, "mean_full"], read(tiny_model, [end], OPTIONS)[0, "mean_full"])
    with pytest.raises(ValueError, match="no written token"):
        Reading("c", tokens_T, 10)


def test_a_layer_out_of_range_is_one_line(tiny_model: Qwen3ForCausalLM) -> None:
    with pytest.raises(UserError, match=says("activations.layers", 2, "0 to 1")):
        read(tiny_model, readings(1), ActivationOptions(layers=(2,)))


# Activations on disk.


def test_a_store_holds_what_reading_gives(tiny_model: Qwen3ForCausalLM, tmp_path: Path) -> None:
    several, options = readings(9), replace(OPTIONS, batch_tokens=40)
    store = extract(tiny_model, several, options, tmp_path / "store", "me")
    direct = read(tiny_model, several, OPTIONS)
    assert store.ids == tuple(reading.id for reading in several)
    for (layer, pooling), features_ND in direct.items():
        assert np.allclose(store.features(layer, pooling), features_ND, rtol=1e-4, atol=1e-4)
    assert ActivationStore.open(tmp_path / "store", "me") == store


def test_a_killed_extraction_resumes(
    tiny_model: Qwen3ForCausalLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    several, options = readings(9), replace(OPTIONS, batch_tokens=40)
    whole = extract(tiny_model, several, options, tmp_path / "whole", "me")
    calls, original = [], activations._read_batch

    def dying(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(activations, "_read_batch", dying)
    with pytest.raises(KeyboardInterrupt):
        extract(tiny_model, several, options, tmp_path / "killed", "me")
    with pytest.raises(UserError, match=says("of 9 tasks", "extracting")):
        ActivationStore.open(tmp_path / "killed")
    first = len(calls)
    resumed = extract(tiny_model, several, options, tmp_path / "killed", "me")
    monkeypatch.undo()
    fresh = len(list(activations._batches(several, options)))
    assert len(calls) - first == fresh - 2  # two batches were done
    assert np.array_equal(resumed.features(1, "mean_full"), whole.features(1, "mean_full"))


def test_another_model_or_other_tasks_are_refused(tiny_model: Qwen3ForCausalLM, tmp_path: Path) -> None:
    extract(tiny_model, readings(3), OPTIONS, tmp_path, "me")
    with pytest.raises(UserError, match=says("another reference model")):
        ActivationStore.open(tmp_path, "someone else")
    with pytest.raises(UserError, match=says("different", "reference")):
        extract(tiny_model, readings(3), OPTIONS, tmp_path, "someone else")
    with pytest.raises(UserError, match=says("different", "tasks")):
        extract(tiny_model, readings(3, seed=1), OPTIONS, tmp_path, "me")
    with pytest.raises(UserError, match=says("no activations")):
        ActivationStore.open(tmp_path / "nothing")


def test_different_models_have_different_fingerprints(tiny_model: Qwen3ForCausalLM) -> None:
    before = model_fingerprint(tiny_model)
    assert before == model_fingerprint(tiny_model)
    with torch.no_grad():
        tiny_model.model.norm.weight[0] += 1e-3
    assert before != model_fingerprint(tiny_model)


# Splits.


@given(
    st.lists(st.booleans(), min_size=20, max_size=120).filter(lambda x: 3 <= sum(x) <= len(x) - 3), st.integers(0, 9)
)
def test_a_random_split_is_a_partition_with_both_classes(labels: list[bool], seed: int) -> None:
    labels_N = np.asarray(labels)
    split = random_split(labels_N, seed)
    assert sorted(np.concatenate(split).tolist()) == list(range(len(labels)))
    assert all(0 < labels_N[part].sum() < len(part) for part in split)


def test_downsampling_balances() -> None:
    labels_N = np.arange(50) < 7
    rows = downsample(labels_N, 3)
    assert labels_N[rows].sum() == 7 and len(rows) == 14 and len(set(rows)) == 14


def test_one_class_only_is_one_line() -> None:
    with pytest.raises(UserError, match=says("probe", "0 positive", "40 negative", "label more")):
        random_split(np.zeros(40, bool), 0)


# Scores.


def test_scores_by_hand() -> None:
    logits_N = np.asarray([2.0, 1.0, -1.0, 0.5, -2.0, -3.0])
    labels_N = np.asarray([True, True, True, False, False, False])
    found = score(logits_N, labels_N, labels_N.astype(float))
    assert (found.rows, found.positives) == (6, 3)
    assert found.accuracy == pytest.approx(4 / 6) and found.balanced_accuracy == pytest.approx((2 / 3 + 2 / 3) / 2)
    assert found.f1 == pytest.approx(2 / 3)
    assert found.auc == pytest.approx(8 / 9)  # one of nine pairs is the wrong way round
    assert found.spearman == pytest.approx(0.683, abs=1e-3)


def test_calibration_error_by_hand() -> None:
    logits_N = np.repeat([np.log(0.8 / 0.2), np.log(0.3 / 0.7)], 10)
    labels_N = np.asarray([True] * 6 + [False] * 4 + [True] * 3 + [False] * 7)
    assert calibration_error(logits_N, labels_N) == pytest.approx((0.2 + 0.0) / 2, abs=1e-6)
    # 1 is in the last of 15 bins, from 14/15 on, together with .95: shares of 1/2, a mean of .975.
    certain_N = np.asarray([40.0, np.log(0.95 / 0.05)])
    assert calibration_error(certain_N, np.asarray([True, False])) == pytest.approx(0.975 - 0.5)


def test_the_temperature_undoes_overconfidence() -> None:
    rng = np.random.default_rng(0)
    honest_N = rng.normal(0, 1, 20_000)
    labels_N = rng.random(20_000) < 1 / (1 + np.exp(-honest_N))
    assert best_temperature(3 * honest_N, labels_N) == pytest.approx(3, rel=0.05)


def test_the_temperature_does_not_make_up_for_rare_positives() -> None:
    rng = np.random.default_rng(0)
    labels_N = np.arange(330) < 30
    logits_N = np.where(labels_N, 0.5, -2.0) + rng.normal(0, 1, 330)
    often = np.concatenate([np.repeat(np.arange(30), 10), np.arange(30, 330)])
    assert best_temperature(logits_N, labels_N) == pytest.approx(best_temperature(logits_N[often], labels_N[often]))


def test_the_interval_covers() -> None:
    rng, covered = np.random.default_rng(0), 0
    for trial in range(200):
        labels_N = np.arange(200) < 80
        right_N = rng.random(200) < 0.7
        logits_N = np.where(right_N == labels_N, 1.0, -1.0)
        low, high = balanced_accuracy_interval(logits_N, labels_N, draws=500, seed=trial)
        covered += low <= 0.7 <= high
    assert 180 <= covered <= 199


def test_a_gain_is_of_pairs() -> None:
    labels_N = np.arange(40) < 10
    always_N, other_N = np.where(labels_N, 1.0, -1.0), np.where(labels_N, 1.0, -1.0)
    other_N[[0, 1, *range(10, 16)]] *= -1  # 2 of 10 positives wrong, 6 of 30 negatives: balanced accuracy .8
    gain, (low, high) = balanced_accuracy_gain(always_N, other_N, labels_N)
    # A resample's gain is the mean of two binomial shares, of 10 rows and of 30, each with chance .2.
    spread = (0.2 * 0.8 / 10 + 0.2 * 0.8 / 30) ** 0.5 / 2
    assert gain == pytest.approx(0.2) and (high - low) / 2 == pytest.approx(1.96 * spread, rel=0.1)
    # Against itself there is nothing to gain, however often it errs, while two unpaired intervals would overlap widely.
    assert balanced_accuracy_gain(other_N, other_N, labels_N) == (0.0, (0.0, 0.0))
    assert balanced_accuracy_gain(other_N, always_N, labels_N)[0] == pytest.approx(-0.2)


# Fitting.


def separable(num: int = 1000, width: int = 8, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """One feature of many decides; every feature has its own scale and offset."""
    rng = np.random.default_rng(seed)
    features_ND = rng.normal(size=(num, width)).astype(np.float32)
    labels_N = features_ND[:, 2] + 0.1 * rng.normal(size=num) > 0.8
    return features_ND * np.arange(1, width + 1, dtype=np.float32) + 5, labels_N


@pytest.mark.parametrize("head", ["linear", "mlp", "deep_mlp"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_probe_learns_what_can_be_read(head: Any, weighted: bool) -> None:
    features_ND, labels_N = separable()
    split = random_split(labels_N, 0, SplitOptions(0.2, 0.2))
    if not weighted:
        split = split._replace(train=split.train[downsample(labels_N[split.train], 0)])
    probe = fit(features_ND, labels_N, split, head, ProbeTraining(epochs=30, lr=3e-3), weighted, seed=0)
    logits_M, test_M = probe.logits(features_ND[split.test]), labels_N[split.test]
    assert score(logits_M, test_M, test_M.astype(float)).balanced_accuracy > 0.85


def test_fitting_is_a_function_of_its_arguments() -> None:
    features_ND, labels_N = separable(120)
    split = random_split(labels_N, 0)
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    first, second = (fit(features_ND, labels_N, split, "mlp", ProbeTraining(epochs=3), True, 5) for _ in range(2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert np.array_equal(first.logits(features_ND), second.logits(features_ND))
    other = fit(features_ND, labels_N, split, "mlp", ProbeTraining(epochs=3), True, 6)
    assert not np.array_equal(first.logits(features_ND), other.logits(features_ND))


def test_training_stops_and_keeps_the_best_epoch() -> None:
    features_ND, labels_N = separable(100)
    labels_N = np.random.default_rng(0).permutation(labels_N)  # nothing to learn, so it soon gets worse
    split = random_split(labels_N, 0, SplitOptions(0.3, 0.1))
    held_H = torch.from_numpy(labels_N[split.validation].astype(np.int64))

    def loss(epochs: int, patience: int) -> float:
        training = ProbeTraining(epochs=epochs, patience=patience, lr=1e-2)
        probe = fit(features_ND, labels_N, split, "mlp", training, False, 0)
        outputs_H2 = probe(torch.from_numpy(features_ND[split.validation]))
        losses_H = torch.nn.functional.cross_entropy(outputs_H2, held_H, reduction="none")
        return (losses_H[held_H == 0].mean() + losses_H[held_H == 1].mean()).item() / 2

    assert loss(40, 40) == pytest.approx(min(loss(epochs, 40) for epochs in range(1, 41)), abs=1e-6)
    assert loss(40, 2) <= loss(1, 2)


def test_a_probe_comes_back_from_its_file(tmp_path: Path) -> None:
    features_ND, labels_N = separable(120)
    probe = fit(features_ND, labels_N, random_split(labels_N, 0), "mlp", ProbeTraining(epochs=2), True, 0)
    site = Site(1, "mean_full", "me")
    save_probe(probe, site, tmp_path / "p.safetensors")
    loaded, found = load_probe(tmp_path / "p.safetensors", "me")
    assert found == site and np.array_equal(loaded.logits(features_ND), probe.logits(features_ND))
    with pytest.raises(UserError, match=says("another reference model")):
        load_probe(tmp_path / "p.safetensors", "someone else")
    (tmp_path / "q.safetensors").write_text("nothing")
    with pytest.raises(UserError, match=says("not a probe")):
        load_probe(tmp_path / "q.safetensors")


def test_the_logit_is_positive_minus_negative_and_temperature_divides() -> None:
    probe = Probe("linear", 2)
    with torch.no_grad():
        probe.head[0].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
        probe.head[0].bias.zero_()
    probe.temperature.fill_(4.0)
    row_ND = np.asarray([[3.0, 5.0]], np.float32)
    assert probe.logits(row_ND, calibrated=False).tolist() == [10 - 3]
    assert probe.logits(row_ND).tolist() == [7 / 4]


# The sweep.


def a_store(model: Qwen3ForCausalLM, path: Path, num: int = 600) -> tuple[ActivationStore, LabelledRows]:
    """Tasks are in the band if their last token is large."""
    several = readings(num)
    with torch.no_grad():  # unscaled random blocks would bury the token's identity
        for block in model.model.layers:
            block.self_attn.o_proj.weight *= 0.05
            block.mlp.down_proj.weight *= 0.05
    labels_N = np.asarray([reading.tokens_T[-1] > 20 for reading in several])
    rates_N = np.where(labels_N, 0.25, 0.75)
    store = extract(model, several, OPTIONS, path, "me")
    return store, LabelledRows(labels_N, rates_N)


SWEEP = SweepOptions(
    heads=("linear",),
    balance=("downsample", "weighted"),
    split=SplitOptions(validation=0.25, test=0.25),
    training=ProbeTraining(epochs=40, lr=1e-2),
    max_ece=0.5,
    permutations=4,
)


def test_a_sweep_fills_its_cells_and_resumes(tiny_model: Qwen3ForCausalLM, tmp_path: Path) -> None:
    store, rows = a_store(tiny_model, tmp_path / "store")
    asked: list[Site] = []

    def variance(probe: Probe, site: Site) -> float:
        asked.append(site)
        if len(asked) == 4:
            raise KeyboardInterrupt
        return float(len(asked))

    with pytest.raises(KeyboardInterrupt):
        sweep(store, rows, SWEEP, 0, tmp_path / "sweep", variance)
    assert len(read_cells(tmp_path / "sweep")) == 3
    with (tmp_path / "sweep" / "cells.jsonl").open("a") as file:
        file.write('{"half a li')
    cells = sweep(store, rows, SWEEP, 0, tmp_path / "sweep", variance)
    assert len(cells) == 2 * 2 * 2 == len({cell.key for cell in cells}) and len(asked) == 9
    assert read_cells(tmp_path / "sweep") == sorted(cells, key=lambda cell: cell.rvp)
    whole = sweep(store, rows, SWEEP, 0, tmp_path / "whole", lambda *_: 0.0)
    assert [replace(cell, rvp=0.0) for cell in cells] == whole
    assert max(cell.test.balanced_accuracy for cell in cells) > 0.8
    assert all(cell.test_interval[0] <= cell.test.balanced_accuracy <= cell.test_interval[1] for cell in cells)


def test_permuted_labels_are_at_chance(tiny_model: Qwen3ForCausalLM, tmp_path: Path) -> None:
    store, rows = a_store(tiny_model, tmp_path / "store")
    cell = sweep(store, rows, SWEEP, 0, tmp_path / "s", lambda *_: 0.0)[0]
    accuracies = permuted_control(store, rows, cell, SWEEP, seed=0)
    assert len(accuracies) == 4 and 0.4 < np.mean(accuracies) < 0.6 < cell.test.balanced_accuracy


def cell(accuracy: float, ece: float, rvp: float, layer: int = 0, pooling: str = "last_token") -> Cell:
    scores = Scores(10, 5, accuracy, accuracy, 0.5, 0.5, ece, 0.0)
    return Cell(layer, pooling, "linear", "weighted", scores, scores, (0.0, 1.0), rvp, 1.0, f"{layer}{pooling}")


def test_the_choice_is_by_accuracy_then_calibration_then_variance() -> None:
    options = SweepOptions(max_ece=0.1, tie=0.01)
    uncalibrated = cell(0.9, 0.3, 9.0)
    low, best, close = cell(0.6, 0.05, 9.0), cell(0.7, 0.05, 0.1), cell(0.695, 0.05, 0.2)
    found = choose([uncalibrated, low, best, close], options)
    assert (found.cell, found.calibrated, found.tied) == (close, True, 2)
    assert choose([uncalibrated], options).calibrated is False
    assert choose([best, close], replace(options, tie=0.0)).cell == best


def test_an_ensemble_reads_at_different_sites() -> None:
    cells = [cell(0.7, 0, 1), cell(0.69, 0, 1, 0, "mean_full"), cell(0.6, 0, 1, 1, "mean_full"), cell(0.65, 0, 1, 1)]
    options = SweepOptions(tie=0.0)
    assert ensemble(cells, cells[0], 2, options) == [cells[0], cells[2]]
    assert len(set(map(str, ensemble(cells, cells[0], 4, options)))) == 4
    with pytest.raises(UserError, match=says("reward.ensemble", 5, 4)):
        ensemble(cells, cells[0], 5, options)


def test_lookups_find_the_informative_feature() -> None:
    rng = np.random.default_rng(0)
    told_N = rng.integers(0, 4, 600)
    labels_N = rng.random(600) < np.asarray([0.05, 0.1, 0.5, 0.6])[told_N]
    surface = {
        "noise": rng.normal(size=600),
        "told": told_N.astype(float),
        "topic": rng.integers(0, 3, 600).astype(str),
    }
    split = random_split(labels_N, 0, SplitOptions(0.3, 0.3))
    knowing_M = np.where(labels_N[split.test], 1.0, -1.0)
    best, *others = lookups(surface, labels_N, split, knowing_M)
    assert best.feature == "told" and best.test.balanced_accuracy > 0.7
    assert best.probe_gain == pytest.approx(1 - best.test.balanced_accuracy)
    assert best.probe_gain_interval[0] < best.probe_gain < best.probe_gain_interval[1]
    assert all(abs(other.test.balanced_accuracy - 0.5) < 0.15 for other in others)


def test_a_lookup_calls_an_unknown_value_average() -> None:
    labels_N = np.asarray([True, False] * 10)
    values_N = np.asarray(["a", "b"] * 6 + ["c", "c"] * 4)
    split = RowSplit(np.arange(12), np.arange(12, 16), np.arange(16, 20))
    [found] = lookups({"letter": values_N}, labels_N, split, np.ones(4))
    assert found.test.auc == 0.5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ActivationOptions(layers=()), r"activations\.layers: .*\(\)"),
        (lambda: ActivationOptions(layers=(1, 1)), r"list at least one, each once"),
        (lambda: ActivationOptions((1,), ("mean_ful",)), "'mean_full'"),
        (lambda: ActivationOptions((1,), ("max",)), r"activations\.poolings"),
        (lambda: SweepOptions(heads=()), r"sweep\.heads"),
        (lambda: SplitOptions(validation=0.5, test=0.5), r"leave something to train on"),
        (lambda: ProbeTraining(lr=0), r"probe\.lr"),
    ],
)
def test_options_refuse_what_cannot_be(make: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()


def test_records_are_plain_json() -> None:
    from dataclasses import asdict

    one = cell(0.7, 0.1, 2.0)
    assert Cell.from_record(json.loads(json.dumps(asdict(one)))) == one


@pytest.mark.parametrize("resumed", [False, True])
def test_vectors_are_not_written_through_a_link(resumed: bool, tiny_model: Qwen3ForCausalLM, tmp_path: Path) -> None:
    store, victim = tmp_path / "store", tmp_path / "victim"
    extract(tiny_model, readings(3), OPTIONS, store, "me")
    manifest = json.loads((store / activations.MANIFEST).read_text())
    (store / activations.MANIFEST).write_text(json.dumps(manifest | {"done": int(resumed)}))
    file = next(store.glob("*.npy"))
    file.rename(victim)
    file.symlink_to(victim)
    content = victim.read_bytes()
    with pytest.raises(UserError, match=says(file, "is a link to")):
        extract(tiny_model, readings(3), OPTIONS, store, "me")
    assert victim.read_bytes() == content


@pytest.mark.parametrize("change", [{"done": -1}, {"done": None}, {"done": "1"}, {"ids": 3}, {"options": []}])
def test_an_impossible_list_of_vectors_is_one_line(
    change: dict[str, Any], tiny_model: Qwen3ForCausalLM, tmp_path: Path
) -> None:
    extract(tiny_model, readings(3), OPTIONS, tmp_path, "me")
    file = tmp_path / activations.MANIFEST
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    for read_again in (lambda: extract(tiny_model, readings(3), OPTIONS, tmp_path, "me"), lambda: open_any(tmp_path)):
        with pytest.raises(UserError, match=says(file, "is damaged")):
            read_again()


def open_any(path: Path) -> object:
    return ActivationStore.open(path)


HEADER = b"\x93NUMPY\x01\x00\x0a\x00"


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", HEADER + b"(((((((((\n", HEADER + b"'''      \n", b"pickle"])
def test_damaged_vectors_are_one_line(content: bytes, tiny_model: Qwen3ForCausalLM, tmp_path: Path) -> None:
    store = extract(tiny_model, readings(3), OPTIONS, tmp_path, "me")
    file = next(tmp_path.glob("*.npy"))
    for odd in (np.zeros((3, 2)), np.zeros(3, np.float32), np.zeros((2, 2), np.float32)):
        np.save(file, odd)
        with pytest.raises(UserError, match=says(file, "does not have 3 rows")):
            [store.features(layer, pooling) for layer in OPTIONS.layers for pooling in OPTIONS.poolings]
    file.write_bytes(content)
    with pytest.raises(UserError, match=says(file, "is damaged", "extract again")):
        [store.features(layer, pooling) for layer in OPTIONS.layers for pooling in OPTIONS.poolings]
