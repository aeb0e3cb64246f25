"""Draws the figures of a report: functions of a comparison that return a chart, or None without data.

- `all_figures`: lists all figures, with headings
- `learning_curves`: held-out scores over training
- `groups`: pass counts, zero-variance groups, and groups with prefixes
- `spending`: where rollouts and seconds went
- `timeline`: work of sampler and learner over time, and lags of groups, with asynchronous rollouts
- `forest`: contrasts as points with intervals
- `series`: series over steps, summed or averaged over seeds, and smoothed
- `charts`: builds and saves charts, as Vega-Lite specifications
- `colors`: colours that all figures share
- `style`: the style of figures that Matplotlib draws: those of results and papers
"""
