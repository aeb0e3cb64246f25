"""The folder of the user's cache."""

import os
import stat
from pathlib import Path


def user_cache(name: str) -> Path | None:
    """Make a folder of this name in the user's cache; None if it cannot be this user's alone."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "halfway" / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except (OSError, RuntimeError):
        return None
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    return folder if own else None
