"""Checked fields: a frozen dataclass whose values are refused at construction, and its way from and to plain data."""

import ast
import difflib
import inspect
import itertools
import sys
import textwrap
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self, TypeVar

import msgspec
import numpy as np

from comlrl_env.errors import ConfigError

FieldsT = TypeVar("FieldsT", bound="CheckedFields")

SECRET = "secret"
"""In a field's metadata: its value goes into no file, no error and no repr."""


def secret() -> Any:
    """A field that is None or a secret."""
    return field(default=None, repr=False, metadata={SECRET: True})


@dataclass(kw_only=True, frozen=True)
class CheckedFields:
    """The base of the configurations: types, ranges and combinations of all fields are checked at construction.

    Raises:
        ConfigError: an unknown name, or a value that breaks a rule; the text names the field, the rule and the value.

    """

    def __new__(cls, **values: Any) -> Self:
        """Refuse unknown names with the nearest known one, which a plain dataclass would not name."""
        for name in values:
            if name not in cls.__dataclass_fields__:
                raise ConfigError(unknown_name(f"{cls.__name__}: unknown field", name, list(cls.__dataclass_fields__)))
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for name, hint in typing.get_type_hints(type(self)).items():
            object.__setattr__(self, name, _plain(getattr(self, name)))  # a frozen dataclass knows no other way
            self._check_type(name, hint)
        for name, (low, high) in self.ranges().items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                rule = f"be at least {low:g}" if high == sys.float_info.max else f"lie in [{low:g}, {high:g}]"
                raise ConfigError(f"{name}: must {rule}, actually {value!r}")
        self.check_combinations()

    @classmethod
    def ranges(cls) -> dict[str, tuple[float, float]]:
        """The closed interval of each bounded number."""
        return {}

    def check_combinations(self) -> None:
        """Refuse fields that do not go together.

        Raises:
            ConfigError: naming the field, the rule and the value.

        """

    @classmethod
    def shown_value(cls, name: str, value: Any) -> str:
        """A value as an error may show it: a secret is never shown."""
        known = cls.__dataclass_fields__.get(name)
        return "a value that is not shown" if known is not None and known.metadata.get(SECRET) else repr(value)

    def shown(self, name: str) -> str:
        """The field's value as an error may show it."""
        return self.shown_value(name, getattr(self, name))

    def _check_type(self, name: str, hint: Any) -> None:
        value = getattr(self, name)
        try:
            msgspec.convert(value, hint, strict=True)
            refused = isinstance(value, bool) and hint in (int, float)
        except msgspec.ValidationError:
            refused = True
        if refused:  # raised outside the handler: msgspec's own text could show a secret
            empty = typing.get_origin(hint) is list and str(value).lower() in ("none", "null")
            way_out = "; write [] for none at all" if empty else ""
            raise ConfigError(f"{name}: {_expected(hint)}, actually {self.shown(name)}{way_out}")


def descriptions(cls: type[CheckedFields]) -> dict[str, str]:
    """What stands below each field in the source: one sentence by name, with the choices where the type lists them."""
    found = {}
    for owner in reversed(cls.__mro__):
        if not issubclass(owner, CheckedFields):
            continue
        (defined,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        assert isinstance(defined, ast.ClassDef)
        for here, below in itertools.pairwise(defined.body):
            if isinstance(here, ast.AnnAssign) and isinstance(below, ast.Expr):
                found[ast.unparse(here.target)] = " ".join(ast.literal_eval(below.value).split())
    for name, hint in typing.get_type_hints(cls).items():
        parts = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
        choices = [str(c) for part in parts if typing.get_origin(part) is Literal for c in typing.get_args(part)]
        if len(choices) > 1:
            found[name] += f" One of {', '.join(choices)}."
    return found


def from_mapping(cls: type[FieldsT], values: Mapping[str, Any]) -> FieldsT:
    """A configuration from text-like values (command line, YAML, TOML): ``"1e-6"`` becomes a float, ``"none"`` None
    (and no entry at all where the field is a list).

    Raises:
        ConfigError: an unknown name (with the nearest known one), a value of the wrong type, an illegal combination.

    """
    hints = typing.get_type_hints(cls)
    converted: dict[str, Any] = {}
    for name, value in values.items():
        if (
            isinstance(value, str)
            and value.lower() in ("none", "null")
            and value not in typing.get_args(hints.get(name))
        ):
            value = None  # noqa: PLW2901 - both spellings people type; parallel_training has a value of that name
        if value is None and typing.get_origin(hints.get(name)) is list:
            value = []  # noqa: PLW2901
        converted[name] = _convert(cls, name, _plain(value), hints[name]) if name in hints else value
    return cls(**converted)


def to_mapping(config: CheckedFields) -> dict[str, Any]:
    """The fields as plain data, in the order of their definition; a secret is None, whatever it is.

    This is what goes into files.
    """
    return {f.name: None if f.metadata.get(SECRET) else getattr(config, f.name) for f in fields(config)}


_MOST_SUGGESTED = 4


def unknown_name(what: str, name: str, known: list[str]) -> str:
    """The text of an error about a name that nobody knows, with those that have its words, or else the nearest one."""
    words = set(name.split("_"))
    near = [one for one in known if words <= set(one.split("_"))]
    near = near if 0 < len(near) <= _MOST_SUGGESTED else difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else f"; known: {', '.join(sorted(known))}"
    return f"{what} {name!r}{hint}"


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's own, whose kinds are checked (a bool is no number there either)."""
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return value.item() if isinstance(value, np.generic) else value


def _convert(cls: type[CheckedFields], name: str, value: Any, hint: Any) -> Any:
    try:
        return msgspec.convert(value, hint, strict=False)
    except msgspec.ValidationError as error:
        reason = "" if cls.__dataclass_fields__[name].metadata.get(SECRET) else f" ({error})"
    raise ConfigError(f"{name}: {_expected(hint)}, actually {cls.shown_value(name, value)}{reason}")


def _expected(hint: Any) -> str:
    origin = typing.get_origin(hint)
    if origin is Literal:
        return "must be one of " + ", ".join(map(repr, typing.get_args(hint)))
    if origin in (typing.Union, types.UnionType):
        return "must be " + " or ".join(_expected(part).removeprefix("must be ") for part in typing.get_args(hint))
    return f"must be {getattr(hint, '__name__', str(hint))}"
