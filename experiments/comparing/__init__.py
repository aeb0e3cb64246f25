"""Comparisons: sweeps, arms and seeds, trained side by side."""
