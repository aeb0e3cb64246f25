"""The registry of readers, and the recognition of a file's format."""

from halfway.curriculum.support.registry import Registry
from halfway.experiments.audit.files import Found
from halfway.experiments.audit.formats.base import head_of

FORMATS = Registry(
    what="--format",
    group="halfway.audit_formats",
    builtin={
        "decisions": "halfway.experiments.audit.formats.decisions:Decisions",
        "verl": "halfway.experiments.audit.formats.verl:Verl",
        "trl": "halfway.experiments.audit.formats.trl:Trl",
        "ms_swift": "halfway.experiments.audit.formats.trl:Swift",
        "prime_rl": "halfway.experiments.audit.formats.episodes:Episodes",
        "verifiers": "halfway.experiments.audit.formats.episodes:Results",
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
"""Readers by the format's name. "table" is tried last, and accepts any file with a problem and a reward column."""


def recognised(found: Found) -> str | None:
    """The name of a file's format; None if no reader knows it.

    Formats of installed packages are tried first, and "table" last.
    """
    head = head_of(found)
    names = sorted(FORMATS.names(), key=lambda name: (name in FORMATS.builtin, name == "table"))
    return next((name for name in names if FORMATS.get(name).knows(head)), None)
