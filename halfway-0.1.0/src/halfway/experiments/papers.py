"""The papers whose methods Halfway implements: titles, names of the methods, and their YAML."""

import re
from collections.abc import Sequence
from typing import NamedTuple


class Paper(NamedTuple):
    """A paper and what implements its method here.

    Attributes:
        names: names of its method, the best known first.
        address: its number on arXiv, or the address of its page.
        parts: controllers and settings that implement it.
        yaml: a recipe's lines that use its method.
    """

    names: tuple[str, ...]
    title: str
    address: str
    parts: tuple[str, ...]
    yaml: str

    @property
    def url(self) -> str:
        return self.address if "://" in self.address else f"https://arxiv.org/abs/{self.address}"

    @property
    def source(self) -> str:
        """The address in the form of a citation."""
        return self.address.removeprefix("https://") if "://" in self.address else f"arXiv {self.address}"


def _paper(names: str, address: str, title: str, yaml: str, *parts: str) -> Paper:
    """Parts left out: the one part that the YAML names first."""
    first = re.search(r"\w+", yaml)
    assert first is not None, yaml
    return Paper(tuple(names.split(", ")), title, address, parts or (first[0],), yaml)


PAPERS: Sequence[Paper] = (
    _paper(
        "Prefix Sampling, PS, Rollout-PRC",
        "2605.05112",
        "Rollout Pass-Rate Control: Steering Binary-Reward RL Toward Its Most Informative Regime",
        "controllers: [prefix_sampling, uniform]",
        "prefix_sampling",
    ),
    _paper(
        "PROS",
        "https://openreview.net/forum?id=lz1SRTcnUb",
        "PROS: Towards Compute-Efficient RLVR via Rollout Prefix Reuse",
        "controllers: [pros]",
        "pros",
    ),
    _paper(
        "PROPEL",
        "2606.18284",
        "Breaking the Solver Bottleneck: Training Task Generators at the Learnable Frontier",
        "controllers: [probe, uniform]; the generator by `halfway propel`",
        "probe",
    ),
    _paper(
        "GRESO",
        "2506.02177",
        "Act Only When It Pays: Efficient Reinforcement Learning for LLM Reasoning via Selective Rollouts",
        "controllers: [uniform, greso]; fill: {policy: refill, request: adaptive}",
        *("greso", "fill"),
    ),
    _paper(
        "DAPO, dynamic sampling",
        "2503.14476",
        "DAPO: An Open-Source LLM Reinforcement Learning System at Scale",
        "fill: {policy: refill}; learner: {clip_high: 0.28}",
        *("fill", "learner"),
    ),
    _paper(
        "PPO",
        "1707.06347",
        "Proximal Policy Optimization Algorithms",
        "learner: {advantage: gae, critic: {kind: separate}}",
    ),
    _paper(
        "AdaRFT",
        "2504.05520",
        "Efficient Reinforcement Finetuning via Adaptive Curriculum Learning",
        "servo",
    ),
    _paper(
        "E2H",
        "2506.06632",
        "Curriculum Reinforcement Learning from Easy to Hard Tasks Improves LLM Reasoning",
        "servo: {rule: cosine}",
    ),
    _paper("SEC", "2505.14970", "Self-Evolving Curriculum for LLM Reasoning", "bandit"),
    _paper(
        "DUMP",
        "2504.09710",
        "DUMP: Automated Distribution-Level Curriculum Learning for RL-based LLM Post-training",
        "bandit: {kind: dump}",
    ),
    _paper(
        "MoPPS",
        "2507.04632",
        "Can Prompt Difficulty be Online Predicted for Accelerating RL Finetuning of Reasoning Models?",
        "mopps",
    ),
    _paper(
        "BOTS",
        "2510.26374",
        "BOTS: A Unified Framework for Bayesian Online Task Selection in LLM Reinforcement Finetuning",
        "bots",
    ),
    _paper(
        "CDAS",
        "2505.17652",
        "Rethinking the Sampling Criteria in Reinforcement Learning for LLM Reasoning: A Competence-Difficulty "
        "Alignment Perspective",
        "cdas",
    ),
    _paper(
        "ScaleRL", "2510.13786", "The Art of Scaling Reinforcement Learning Compute for LLMs", "retire: {returns: null}"
    ),
    _paper(
        "Saturated data",
        "2609.33126",
        "Save Your Saturated Data: Learning Beyond Reward Saturation in Group-Based RL",
        "replay: {failures: 2}",
    ),
    _paper(
        "DOTS",
        "2506.05316",
        "Improving Data Efficiency for LLM Reinforcement Fine-tuning Through Difficulty-targeted Online Data Selection "
        "and Rollout Replay",
        "replay",
    ),
    _paper(
        "AR3PO",
        "2509.25808",
        "Improving Sampling Efficiency in RLVR through Adaptive Rollout and Response Reuse",
        "ar3po",
        *("ar3po", "rounds"),
    ),
    _paper(
        "Reinforce-Ada",
        "2510.04996",
        "Reinforce-Ada: An Adaptive Sampling Framework under Non-linear RL Objectives",
        "reinforce_ada",
        *("reinforce_ada", "rounds"),
    ),
    _paper(
        "NGU, Never Give Up",
        "2609.13443",
        "Learning to Solve Hard Problems in RL for LLMs by Never Giving Up",
        "ngu; within a step: ngu_rounds",
        *("ngu", "ngu_rounds"),
    ),
    _paper(
        "Pilot-Commit",
        "2605.26606",
        "Spend Your Rollouts Where It Counts: Rollout Allocation for Group-Based RL Post-Training",
        "controllers: [uniform, retire: {above: 1, returns: null}, pilot: {kind: commit, commits: 32}]; fill: {policy: "
        "refill, groups: 32}",
        *("pilot", "retire"),
    ),
    _paper(
        "Knapsack RL",
        "2509.25849",
        "Knapsack RL: Unlocking Exploration of LLMs via Optimizing Budget Allocation",
        "knapsack",
    ),
    _paper(
        "SPEED",
        "2506.09016",
        "SPEED-RL: Faster Training of Reasoning Models via Online Curriculum Learning",
        "pilot",
    ),
    _paper(
        "HORA",
        "2605.07114",
        "Where to Spend Rollouts: Hit-Utility Optimal Rollout Allocation for Group-Based RLVR",
        "pilot: {kind: hora}",
    ),
    _paper(
        "QuestA",
        "2507.13266",
        "QuestA: Expanding Reasoning Capacity in LLMs via Question Augmentation",
        "hints: {kind: schedule, place: prompt}",
    ),
    _paper(
        "GHPO",
        "2507.10628",
        "GHPO: Adaptive Guidance for Stable and Efficient LLM Reinforcement Learning",
        "hints: {kind: ghpo}",
    ),
    _paper(
        "SEELE",
        "2509.06923",
        "Staying in the Sweet Spot: Responsive Reasoning Evolution via Capability-Adaptive Hint Scaffolding",
        "hints: {kind: seele}",
    ),
    _paper(
        "AdaPrefix, AdaPrefix-GRPO",
        "2607.07674",
        "Max Out GRPO Signal: Adaptive Trace Prefix Control for Hard Reasoning Problems",
        "hints: {kind: adaprefix}",
    ),
    _paper("MaxRL", "2602.02710", "Maximum Likelihood Reinforcement Learning", "maxrl"),
    _paper(
        "RL-ZVP",
        "2509.21880",
        "No Prompt Left Behind: Exploiting Zero-Variance Prompts in LLM Reinforcement Learning via Entropy-Guided "
        "Advantage Shaping",
        "signal",
    ),
    _paper(
        "NGRPO",
        "2509.18851",
        "NGRPO: Negative-enhanced Group Relative Policy Optimization",
        "signal: {kind: ngrpo}",
    ),
    _paper(
        "PODS",
        "2504.13818",
        "Not All Rollouts are Useful: Down-Sampling Rollouts in LLM Reinforcement Learning",
        "downsample",
    ),
    _paper(
        "VCRL",
        "2509.19803",
        "VCRL: Variance-based Curriculum Reinforcement Learning for Large Language Models",
        "vcrl",
    ),
    _paper("RAGEN-2, SNR-aware filtering, top-p", "2604.06268", "RAGEN-2: Reasoning Collapse in Agentic RL", "ragen"),
    _paper("LILO", "2502.12272", "Learning to Reason at the Frontier of Learnability", "lilo"),
)


def plainly(name: str) -> str:
    """Strip case, spaces and punctuation from a name, for comparison."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def find_papers(query: str) -> list[Paper]:
    """Find papers by a name of a method, a number on arXiv or words of a title.

    Example:
        >>> [paper.names[0] for paper in find_papers("arXiv:2506.02177v1")]
        ['GRESO']
    """
    number = re.search(r"\d{4}\.\d{4,5}", query)
    if number:
        return [paper for paper in PAPERS if paper.address == number[0]]
    wanted = plainly(query)
    named = [paper for paper in PAPERS if wanted in map(plainly, paper.names)]
    return named or [paper for paper in PAPERS if len(wanted) > 8 and wanted in plainly(paper.title)]


def papers_of(part: str) -> list[Paper]:
    """Find the papers that a controller, or a group of settings, implements."""
    return [paper for paper in PAPERS if part in paper.parts]
