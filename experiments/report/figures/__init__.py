"""The pictures of a report: functions of a comparison that return a matplotlib figure, or None without data.

- `every`: all of them, with headings and captions
- `curves`: held-out scores over training
- `groups`: pass counts, degenerate groups, prefixes
- `spending`: where rollouts and seconds went
- `forest`: contrasts as points with intervals
- `series`: series over steps, summed and smoothed
- `style`: colours, sizes, axes
"""
