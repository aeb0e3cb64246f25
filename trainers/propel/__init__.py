"""PROPEL: training a task generator on a probe's guess of the solver's pass rate."""
