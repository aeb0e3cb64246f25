"""How long to wait before a process that has ended is started again."""

# The first pause; each further pause is twice as long.
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 300.0


def restart_pause(starts: int) -> float:
    """Seconds to wait after this many starts without success."""
    return min(FIRST_PAUSE * 2.0**starts, LONGEST_PAUSE)
