"""Reading the texts of a TravelPlanner row: Python literals, and tables as a data frame prints them."""

from collections.abc import Mapping, Sequence
from typing import Any

from comlrl_env import syntax
from comlrl_env.errors import TaskError


def whole(row: Mapping[str, Any], field: str) -> int:
    """A field as an integer ≥ 1, which a CSV file holds as text. Raises :class:`TaskError` for anything else."""
    try:
        number = int(str(row[field]))
    except ValueError:
        number = 0
    if number < 1:
        raise TaskError(f"{field}: expected an integer ≥ 1, actually {row[field]!r}")
    return number


def literal(row: Mapping[str, Any], field: str, kind: type) -> Any:
    """A field whose text is a Python literal of this type. Raises :class:`TaskError` for anything else."""
    try:
        value = syntax.literal(row[field])
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        value = None
    if not isinstance(value, kind):
        raise TaskError(f"{field}: expected the text of a Python {kind.__name__}, actually {shown(row[field])}")
    return value


def lines(about: str, content: str, columns: Sequence[str]) -> list[dict[str, str]]:
    """The lines of a table by column; none where the content says that there is nothing.

    Cells may hold blanks, and end where the name of their column ends: everything is aligned to the right. ``about``:
    the table's name in an error. Raises :class:`TaskError` where a name or the alignment differs.
    """
    if content.startswith("There is no "):
        return []
    head, *body = content.split("\n")
    if head.split() != " ".join(columns).split():
        raise TaskError(f"{about}: expected the columns {', '.join(columns)}, actually {shown(head)}")
    ends = [0]
    for name in columns:
        ends.append(head.index(name, ends[-1]) + len(name))
    found = []
    for line in body:
        if len(line) != len(head) or any(line[end] != " " for end in ends[1:-1]):
            raise TaskError(f"{about}: expected cells that end below their columns' names, actually {shown(line)}")
        found.append(
            {name: line[start:end].strip() for name, start, end in zip(columns, ends[:-1], ends[1:], strict=True)}
        )
    return found


def number(about: str, text: str) -> float:
    """A cell as a finite number ≥ 0, an integer where it is one. Raises :class:`TaskError` for anything else."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise TaskError(f"{about}: expected a finite number ≥ 0, actually {text!r}")
    return int(value) if value.is_integer() else value


def shown(value: Any) -> str:
    """A value as an error shows it: its beginning."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
