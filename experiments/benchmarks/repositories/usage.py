"""Measures processor time and memory of this process and the processes that it started."""

import os
import resource
from pathlib import Path


def cpu_seconds() -> float:
    """Processor seconds of this process and of everything it has waited for, including its boxes' workers."""
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in own) + sum(cpu for _, cpu, _ in descendants().values())


def descendants() -> dict[int, tuple[int, float, float]]:
    """Every process that this one has started, directly or not: its parent, processor seconds and private bytes."""
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    facts: dict[int, tuple[int, float, float]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            sizes = Path(f"/proc/{name}/statm").read_text().split()
        except OSError:
            continue
        memory = (int(sizes[1]) - int(sizes[2])) * page if len(sizes) > 2 else 0
        facts[int(name)] = (int(fields[1]), sum(map(int, fields[11:15])) / tick, memory)
    found = {os.getpid()}
    for _ in range(8):
        found |= {pid for pid, (parent, _, _) in facts.items() if parent in found}
    return {pid: facts[pid] for pid in found - {os.getpid()} if pid in facts}
