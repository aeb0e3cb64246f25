"""One line about skipped tests, and about what would run them."""

import re
from collections import Counter
from collections.abc import Iterable

# Part of a reason -> what runs the tests skipped for it.
REMEDIES = {
    "vllm": "make test-engines",
    "deepspeed": "make test-engines",
    "trinity": "make test-hosts",
    "verl": "make test-hosts",
    "transfer_queue": "make test-hosts",
    "tinker_cookbook": "make test-hosts",
    "verifiers": "make test-hosts",
    "is below /tmp": "a virtual environment outside /tmp",
    "bubblewrap": "apt install bubblewrap",
    "bwrap": "apt install bubblewrap",
    "swe-rex": "pip install swe-rex",
    "chromium": "apt install chromium",
    "site is not built": "make site",
}


def skipped_line(reasons: Iterable[str]) -> str:
    """The numbers of skipped tests (or whole files) by what they lack; empty if none were."""
    counts = Counter(remedy_of(reason) for reason in reasons)
    return "skipped: " + "; ".join(f"{count} {remedy}" for remedy, count in counts.most_common()) if counts else ""


def remedy_of(reason: str) -> str:
    """What would run a test that was skipped for this reason; otherwise the reason itself."""
    lowered = reason.lower()
    for part, remedy in REMEDIES.items():
        if part in lowered:
            return f"need `{remedy}`"
    missing = re.search(r"could not import '([\w.]+)'", reason)
    return f"need the package {missing[1]}" if missing else f"({reason.removeprefix('Skipped: ')})"
