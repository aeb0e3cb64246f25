"""Paths for tests that start programs or read recipes."""

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
DRIVERS = REPOSITORY / "tests" / "support" / "drivers"
# PYTHONPATH of child processes: this checkout's packages, and the modules that tests share.
IMPORTABLE = os.pathsep.join(str(REPOSITORY / folder) for folder in ("src", "tests/support"))
