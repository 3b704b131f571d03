"""Plain values and frames: all that may pass between a trusted process and one that runs model-written code.

A value is plain when it is built from None, bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set
and frozenset (no ``range``: ``tuple(range(10**12))`` in a trusted check would be a bomb). The sender turns subclasses
of these into the plain base (a ``Counter`` becomes a ``dict``), so methods such as ``__eq__`` stay behind; the
receiver builds nothing but these exact types. JSON carries scalars and lists as they are; everything else is an
object with one key, its tag. This file runs on both sides: standard library only.
"""

import json
import struct
from collections.abc import Callable
from typing import Any, Final

HEADER: Final = struct.Struct(">I")


class NotPlainError(ValueError):
    """A value cannot cross: it is not plain data, too deep, or the received text is malformed."""


def encode(value: object) -> Any:
    """The JSON form of a plain value.

    Raises :class:`NotPlainError` with the name of the type that cannot cross.
    """
    try:
        return _encode(value)
    except RecursionError:
        raise NotPlainError("a value that contains itself or is nested too deeply") from None


def decode(data: Any) -> Any:
    """The plain value of a JSON form; raises :class:`NotPlainError` on anything malformed."""
    try:
        return _decode(data)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError, MemoryError) as error:
        raise NotPlainError(f"malformed value ({type(error).__name__})") from None


def pack(message: Any) -> bytes:
    """One frame: the length in four bytes, then JSON."""
    body = json.dumps(message, separators=(",", ":")).encode("ascii")
    return HEADER.pack(len(body)) + body


class Frames:
    """Cuts a byte stream into messages; ``limit`` bounds the size of one frame in bytes.

    ``broken`` says what is wrong once the stream holds a frame that is too long or no JSON; nothing after it is read.
    """

    def __init__(self, limit: int) -> None:
        self.broken = ""
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """The messages that ``data`` completes."""
        self._buffer += data
        messages = []
        while not self.broken and len(self._buffer) >= HEADER.size:
            (length,) = HEADER.unpack_from(self._buffer)
            end = HEADER.size + length
            if length > self._limit:
                self.broken = f"a frame of {length} bytes, more than {self._limit}"
            elif len(self._buffer) < end:
                break
            else:
                body = bytes(self._buffer[HEADER.size : end])
                del self._buffer[:end]
                try:
                    messages.append(json.loads(body))
                except (ValueError, RecursionError):
                    self.broken = "a frame that is not JSON"
        return messages


def _encode(value: Any) -> Any:
    kind = type(value)
    if value is None or kind is bool or kind is str or kind is float:
        return value
    if kind is int:
        return value if -(2**63) < value < 2**63 else {"i": hex(value)}
    if kind is list:
        return [_encode(member) for member in value]
    tag = _TAGS.get(kind)
    if tag is not None:
        return {tag: _ENCODERS[tag](value)}
    for base, plain in _BASES.items():
        if isinstance(value, base):
            return _encode(plain(value))
    raise NotPlainError(f"a value of type {kind.__name__}, which is not plain data")


def _decode(data: Any) -> Any:
    if data is None or isinstance(data, bool | str | float | int):
        return data
    if isinstance(data, list):
        return [_decode(member) for member in data]
    ((tag, content),) = data.items()
    return _DECODERS[tag](content)


def _members(value: Any) -> list[Any]:
    return [_encode(member) for member in value]


_TAGS: dict[type, str] = {
    tuple: "t",
    dict: "d",
    set: "s",
    frozenset: "z",
    bytes: "b",
    bytearray: "y",
    complex: "c",
}
_ENCODERS: dict[str, Callable[[Any], Any]] = {
    "t": _members,
    "d": lambda value: [[_encode(key), _encode(content)] for key, content in value.items()],
    "s": _members,
    "z": _members,
    "b": lambda value: value.hex(),
    "y": lambda value: value.hex(),
    "c": lambda value: [value.real, value.imag],
}
_DECODERS: dict[str, Callable[[Any], Any]] = {
    "i": lambda content: int(content, 16),
    "t": lambda content: tuple([_decode(member) for member in content]),
    "d": lambda content: {_decode(key): _decode(member) for key, member in content},
    "s": lambda content: {_decode(member) for member in content},
    "z": lambda content: frozenset([_decode(member) for member in content]),
    "b": bytes.fromhex,
    "y": bytearray.fromhex,
    "c": lambda content: complex(*content),
}
# The unbound methods of the base, so that an overridden method of the subclass is never asked.
_BASES: dict[type, Callable[[Any], Any]] = {
    int: int.__index__,
    float: float.__float__,
    str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    list: lambda value: list.__getitem__(value, slice(None)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    dict: lambda value: dict(dict.items(value)),
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
}
