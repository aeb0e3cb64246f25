"""How long to wait before a process that has ended is started again."""

# This long at first, then twice as long each time.
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 300.0


def restart_pause(starts: int) -> float:
    """Seconds from the latest of so many starts that came to nothing to the next one."""
    return min(FIRST_PAUSE * 2.0**starts, LONGEST_PAUSE)
