"""Checks the user's consent: a recipe alone may only read data and models.

Anything else needs a word in the environment variable `HALFWAY_ACCEPT`, separated by commas; SECURITY.md lists them.
"""

import os

from halfway.curriculum.support.errors import UserError

VARIABLE = "HALFWAY_ACCEPT"


def accepted_words() -> tuple[str, ...]:
    """Read the accepted words of this process's user."""
    return tuple(os.environ.get(VARIABLE, "").replace(",", " ").split())


def is_accepted(word: str) -> bool:
    """True if the user has given consent to this word."""
    return word in accepted_words()


def require_accepted(word: str, field: str, harm: str) -> None:
    """Raise UserError unless the user has given consent for a field's value.

    Args:
        harm: the consequence, as the end of a sentence that begins with the field's name.
    """
    if not is_accepted(word):
        raise UserError(
            f"{field}: {harm}, which needs your consent outside the file; set {VARIABLE}={word} if you trust it"
        )
