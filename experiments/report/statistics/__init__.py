"""Computes the errors of a comparison's results.

- `intervals`: 95 % intervals of means, shares and ratios
- `crossed`: errors of means over seeds x problems
- `holm`: adjustment for several contrasts at once, and their power
"""
