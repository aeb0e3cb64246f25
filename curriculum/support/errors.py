"""The one exception that a user may cause: its message is a single line, shown without a traceback."""


class UserError(ValueError):
    """A mistake in a file, an option or a checkpoint. The message names the field, the value and the remedy."""


def require(condition: bool, field: str, value: object, remedy: str) -> None:
    """Raise the one-line error for a field whose value is not acceptable."""
    if not condition:
        raise UserError(f"{field}: {value!r} is not acceptable; {remedy}")
