"""Task generation: what a generator writes, when it is a valid task, and the problem it becomes."""
