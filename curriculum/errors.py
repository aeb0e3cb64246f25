"""The one exception that a user may cause: its message is a single line, shown without a traceback."""


class UserError(ValueError):
    """A mistake in a file, an option or a checkpoint. The message names the field, the value and the remedy."""
