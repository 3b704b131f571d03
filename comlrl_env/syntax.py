"""Reading Python source, also on several threads at once.

Up to Python 3.12 ``ast.parse`` counts its depth in a place that threads share, and now and then ends with "SystemError:
AST constructor recursion depth mismatch" (cpython issue 106905).
"""

import ast
import threading
from typing import Any

_LOCK = threading.Lock()


def parse(source: str, mode: str = "exec") -> Any:
    """The syntax tree that ``ast.parse`` gives; raises what it raises."""
    with _LOCK:
        return ast.parse(source, mode=mode)


def literal(text: Any) -> Any:
    """The value that ``ast.literal_eval`` reads in a text; raises what it raises."""
    return ast.literal_eval(parse(text.lstrip(" \t"), "eval") if isinstance(text, str) else text)
