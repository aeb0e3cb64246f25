"""The registry of readers."""

from halfway.curriculum import Registry
from halfway.experiments.audit.formats.base import Reader

FORMATS = Registry(
    what="--format",
    group="halfway.audit_formats",
    builtin={
        "decisions": "halfway.experiments.audit.formats.decision_log:Decisions",
        "verl": "halfway.experiments.audit.formats.verl:Verl",
        "trl": "halfway.experiments.audit.formats.trl:Trl",
        "ms_swift": "halfway.experiments.audit.formats.trl:Swift",
        "prime_rl": "halfway.experiments.audit.formats.prime_rl:Episodes",
        "areal": "halfway.experiments.audit.formats.areal:Areal",
        "nemo_rl": "halfway.experiments.audit.formats.nemo_rl:NemoRl",
        "open_instruct": "halfway.experiments.audit.formats.open_instruct:OpenInstruct",
        "roll": "halfway.experiments.audit.formats.roll:Roll",
        "trinity": "halfway.experiments.audit.formats.trinity:Trinity",
        "trinity_sqlite": "halfway.experiments.audit.formats.trinity:TrinityDatabase",
        "tinker": "halfway.experiments.audit.formats.tinker:Tinker",
        "table": "halfway.experiments.audit.formats.table:Table",
    },
)
"""Readers by the format's name. "table" accepts any file with a problem and a reward column."""


def readers() -> dict[str, type[Reader]]:
    """The readers in the order in which they are tried: installed ones first, "table" last."""
    names = sorted(FORMATS.names(), key=lambda name: (name in FORMATS.builtin, name == "table"))
    return {name: FORMATS.get(name) for name in names}
