"""Errors of what a comparison says.

- `intervals`: 95 % intervals of means, shares and ratios
- `crossed`: means over seeds x problems
- `multiple`: many contrasts at once, and their power
"""
