"""Probes: small heads that read a frozen model's hidden states and guess whether a task is worth a solver's time."""
