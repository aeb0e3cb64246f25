"""Draws the figures of a report: functions of a comparison that return a matplotlib figure, or None without data.

- `all_figures`: lists all figures, with headings and captions
- `learning_curves`: held-out scores over training
- `groups`: pass counts, zero-variance groups, and groups behind prefixes
- `spending`: where rollouts and seconds went
- `timeline`: who worked when, where rollouts do not wait
- `forest`: contrasts as points with intervals
- `hover`: what a page shows under the cursor
- `series`: series over steps, summed or averaged over seeds, and smoothed
- `style`: colours, sizes and axes that all figures share
"""
