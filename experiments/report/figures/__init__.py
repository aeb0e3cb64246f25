"""The pictures of a report: functions of a comparison that return a matplotlib figure, or None without data."""
