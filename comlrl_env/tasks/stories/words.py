"""Words of a text, for tasks that count them."""

import re

# No answer is read further; models sometimes write a megabyte.
MAX_TEXT = 100_000
_WORD = re.compile(r"\w+(?:['’-]\w+)*")


def words_of(text: str) -> list[str]:
    """The words of a text in lower case: letters and digits, with apostrophes and hyphens inside."""
    return [word.lower() for word in _WORD.findall(text[:MAX_TEXT])]
