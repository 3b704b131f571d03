"""Reading Python out of a model's answer, by the parser and never by patterns over the code.

Runs in the child before any of the answer is executed, because parsing hostile text can itself hang or crash:
standard library only.

An answer is read as a set of definitions. In this order, the first reading that defines the wanted function wins: the
all fenced blocks together, the fenced blocks one by one, the text as a continuation of what the prompt ended with
(when it starts indented or with the rest of a signature), the text, the text from its first definition or import.
Each reading is cut back to its longest prefix that parses, so that prose or a half-written line at the end costs
nothing before it. Statements that only do something when run (calls, asserts, loops, a main guard) are left out: they
are usage examples.
"""

import ast
import re
import textwrap
import warnings
from collections.abc import Iterator

MAX_CHARACTERS = 50_000
_FENCE = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_FENCE_LINE = re.compile(r"^[ \t]*```", re.MULTILINE)
_CODE_START = re.compile(r"^(?:def|async def|class|import|from|@)\b|^@", re.MULTILINE)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
_KEPT = (*_DEFINITIONS, ast.Import, ast.ImportFrom, ast.Try)


def read(text: str, name: str, opening: str = "") -> dict[str, object]:
    """What the answer ``text`` defines, for the wanted function ``name``.

    ``opening``: what the prompt ended with, in case the answer goes on from there. Returns ``source`` (the
    definitions, ready to run), ``defines`` (``name`` is a top-level function), ``returns`` (with a ``return`` of a
    value in it), ``calls`` (names that it calls), ``wraps`` (the name whose call it merely returns, or ``None``),
    ``ignored`` (names that it calls without using any of their values).
    """
    warnings.simplefilter("ignore")
    text = text[:MAX_CHARACTERS].expandtabs(4) if "\t" in text else text[:MAX_CHARACTERS]
    fallback: ast.Module | None = None
    for candidate in _readings(text, opening):
        tree = _longest_parse(candidate)
        if tree is None:
            continue
        tree.body = [node for node in tree.body if isinstance(node, _KEPT) and not _is_future(node)]
        if _function(tree, name) is not None:
            return _describe(tree, name)
        if fallback is None and tree.body:
            fallback = tree
    return _describe(fallback or ast.Module(body=[], type_ignores=[]), name)


def _readings(text: str, opening: str) -> Iterator[str]:
    blocks = [match.group(1) for match in _FENCE.finditer(text)]
    if len(blocks) > 1:
        yield "\n".join(blocks)
    for block in blocks:
        yield block
        yield textwrap.dedent(block)
    unfenced = _FENCE_LINE.split(text, maxsplit=1)[0]
    if opening:
        continues_line = not opening.endswith("\n")
        starts_indented = unfenced.lstrip("\n")[:1] in {" ", "\t"}
        if continues_line or starts_indented:
            yield opening + unfenced
        yield from (opening + block for block in blocks if block[:1] in {" ", "\t"})
    yield unfenced
    start = _CODE_START.search(unfenced)
    if start:
        yield unfenced[start.start() :]


def _longest_parse(source: str) -> ast.Module | None:
    lines = source.splitlines()
    while lines:
        try:
            return ast.parse("\n".join(lines))
        except SyntaxError as error:
            broken = error.lineno or len(lines)
            del lines[min(broken, len(lines)) - 1 :]
        except (ValueError, RecursionError, MemoryError):
            return None
    return None


def _is_future(node: ast.stmt) -> bool:
    """Imports from ``__future__`` would have to come first, and a problem's own code comes before an answer."""
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _function(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    return found[-1] if found else None


def _describe(tree: ast.Module, name: str) -> dict[str, object]:
    function = _function(tree, name)
    facts: dict[str, object] = {
        "source": ast.unparse(tree),
        "defines": function is not None,
        "returns": False,
        "calls": [],
        "wraps": None,
        "ignored": [],
    }
    if function is not None:
        facts["returns"] = any(isinstance(node, ast.Return) and node.value is not None for node in _own_nodes(function))
        facts["calls"] = sorted({called for node in ast.walk(function) if (called := _called(node))})
        facts["wraps"] = _wraps(function)
        facts["ignored"] = sorted(_ignored(function))
    return facts


def _own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions and classes defined in it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def _called(node: ast.AST | None) -> str | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id
    return None


def _wraps(function: ast.FunctionDef) -> str | None:
    body = [node for node in function.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    if len(body) == 1 and isinstance(body[0], ast.Return):
        return _called(body[0].value)
    if len(body) == 2 and isinstance(body[0], ast.Assign) and isinstance(body[1], ast.Return):
        target, value = body[0].targets[0], body[1].value
        if isinstance(target, ast.Name) and isinstance(value, ast.Name) and target.id == value.id:
            return _called(body[0].value)
    return None


def _ignored(function: ast.FunctionDef) -> set[str]:
    """Names whose every call stands alone or is assigned to a variable that is never read."""
    read = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    dead: set[int] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            if all(isinstance(target, ast.Name) and target.id not in read for target in node.targets):
                dead.add(id(node.value))
        elif isinstance(node, ast.Expr):
            dead.add(id(node.value))
    calls = [(called, id(node) in dead) for node in ast.walk(function) if (called := _called(node))]
    return {called for called, _ in calls} - {called for called, is_dead in calls if not is_dead}
