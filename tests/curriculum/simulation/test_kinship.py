"""By which feature problems learn together, told from a log alone."""

import numpy as np

from halfway.curriculum.problems import Problem, ProblemSet
from halfway.curriculum.simulation.evidence import Evidence
from halfway.curriculum.simulation.kinship import EASE, closest_kin, feature_loadings
from halfway.curriculum.simulation.skills import Course, Dynamics, Lessons, SkillLearner, lessons

KINDS = 4


def log_by_kind(problems: int, steps: int) -> tuple[Evidence, ProblemSet]:
    """Problems of a kind learn together, whatever their ease; only two kinds are trained on."""
    rng = np.random.default_rng(0)
    kind_P, other_P = np.arange(problems) % KINDS, rng.integers(0, KINDS, problems)
    dynamics = Dynamics(rate=0.3, common=0.0, private=0.02, noise=5.0, interference=0.02)
    learner = SkillLearner(Course.of(rng.normal(-0.5, 1.0, problems), np.eye(KINDS)[kind_P]), dynamics, 0)
    rows, taught = [], []
    for step in range(steps):
        where = rng.choice(problems, 12, replace=False)
        passed = rng.binomial(8, learner.rates(where[None])[0])
        trains = (kind_P[where] < 2) & (passed > 0) & (passed < 8)
        rows += [(i, step, k, 8) for i, k in zip(where, passed, strict=True)]
        taught += trains.tolist()
        if trains.any():
            told = lessons(passed[trains], np.full(trains.sum(), 8))
            learner.update(where[trains][None], Lessons(told.signal[None], told.energy[None], told.tokens[None]))
    counts = Evidence.of_counts(*np.array(rows).T)
    evidence = Evidence(*(getattr(counts, name) for name in Evidence.__slots__[:-1]), np.array(taught))
    features = [{"kind": f"k{kind_P[i]}", "other": f"o{other_P[i]}", "id": f"p{i}"} for i in range(problems)]
    return evidence, ProblemSet([Problem(f"p{i:03}", "", "", features=each) for i, each in enumerate(features)])


def test_the_feature_that_problems_learn_by_is_found() -> None:
    evidence, problems = log_by_kind(48, 60)
    name, loadings_PK = closest_kin(evidence, problems)
    assert name == "kind"
    assert loadings_PK.tolist() == np.eye(KINDS)[np.arange(48) % KINDS].tolist()


def test_without_features_it_is_the_order_of_ease() -> None:
    evidence, _ = log_by_kind(24, 10)
    name, loadings_PK = closest_kin(evidence, ProblemSet([Problem(f"p{i}", "", "") for i in range(24)]))
    assert name == EASE and loadings_PK.shape == (24, 8)


def test_features_become_loadings_by_what_they_are() -> None:
    features = [
        {"word": "ab"[i % 2], "same": 1, "number": i / 7, "vector": (3.0, float(i)), "name": f"n{i}"} for i in range(40)
    ]
    found = feature_loadings(ProblemSet([Problem(f"p{i}", "", "", features=f) for i, f in enumerate(features)]))
    assert set(found) == {"word", "number", "vector"}
    assert found["word"][:3].tolist() == [[1, 0], [0, 1], [1, 0]]
    assert found["number"][0].argmax() == 0 and found["number"][-1].argmax() == found["number"].shape[1] - 1
    assert found["vector"][4].tolist() == [3 / 5, 4 / 5]
