"""What tests ask of a message: that it names the field, the value and the remedy, however it is worded."""

import re


def says(*parts: object) -> str:
    """A pattern for `pytest.raises(match=...)` that a message of one line matches if it has each part, in any order.

    Args:
        parts: names, values, options and commands, each whole: 4 is not found in 40.
    """
    return r"\A(?!.*\n)" + "".join(f"(?=.*{_whole(str(part))})" for part in parts)


def _whole(part: str) -> str:
    before = r"(?<!\w)" if re.match(r"\w", part) else ""
    after = r"(?!\w)" if re.search(r"\w\Z", part) else ""
    return f"{before}{re.escape(part)}{after}"
