"""The peak of a program's memory."""

import resource
from pathlib import Path

STATUS = Path("/proc/self/status")


def peak_mib() -> int:
    """MiB that this program had at most in memory.

    On Linux not from `getrusage`: what that says of a child begins with the peak of the process that started it.
    """
    if STATUS.exists():
        [line] = [line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) >> 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
