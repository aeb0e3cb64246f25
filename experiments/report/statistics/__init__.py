"""Intervals, bootstrap over seeds and problems, many contrasts at once, and power."""
