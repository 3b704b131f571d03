"""Calls written as text: reading them without running anything, and matching them with the ones that were wanted."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from comlrl_env.syntax import parse
from comlrl_env.task import JointResponse
from comlrl_env.types import Score

MAX_TEXT = 50_000
MAX_CALLS = 200
_LIST_MARK = re.compile(r"^[ \t]*(?:[-*•]|[0-9]{1,3}[.)])[ \t]+")
_TRIVIA = re.compile(r"[ ,./\-_*^]")
_ESCAPE = re.compile(r"\\(.)")
_KNOWN_ESCAPES = frozenset("\\'\"abfnrtvxuUN01234567")


@dataclass(frozen=True)
class Call:
    """One call as an agent wrote it: plain values only."""

    name: str
    positional: tuple[Any, ...]
    keywords: Mapping[str, Any]


@dataclass(frozen=True)
class Wanted:
    """One call that a request asks for.

    ``arguments``: the accepted values of each, in the order of the tool's parameters; an argument that accepts
    ``""`` may be left out. ``owners``: the agents that can make this call.
    """

    name: str
    arguments: Mapping[str, Sequence[Any]]
    owners: frozenset[str]

    def accepts(self, agent: str, call: Call) -> bool:
        """Whether the call of this agent is this one."""
        if call.name != self.name or agent not in self.owners or len(call.positional) > len(self.arguments):
            return False
        given = dict(zip(self.arguments, call.positional, strict=False))
        if given.keys() & call.keywords.keys() or not call.keywords.keys() <= self.arguments.keys():
            return False
        given |= call.keywords
        return all(
            any(same_value(given[name], value) for value in accepted) if name in given else "" in accepted
            for name, accepted in self.arguments.items()
        )


def same_value(given: Any, accepted: Any) -> bool:
    """Whether two plain values are the same argument.

    Numbers compare by value (``True`` is no number); in texts, case, blanks and the signs ``,./-_*^`` do not count.
    """
    if isinstance(given, str) and isinstance(accepted, str):
        first, second = (_TRIVIA.sub("", text).lower().replace("'", '"') for text in (given, accepted))
        return first == second
    if isinstance(given, list | tuple) and isinstance(accepted, list | tuple):
        return len(given) == len(accepted) and all(map(same_value, given, accepted))
    if isinstance(given, bool) or isinstance(accepted, bool):
        return given is accepted
    return bool(given == accepted)


def read_calls(text: str) -> list[Call]:
    """The calls of one answer, at most :data:`MAX_CALLS`: one per line, or lists of calls; other lines are ignored."""
    calls: list[Call] = []
    for line in text[:MAX_TEXT].splitlines():
        bare = _LIST_MARK.sub("", line).strip(" \t`;")
        if "(" in bare:
            calls += _calls_in(bare)
        if len(calls) >= MAX_CALLS:
            break
    return calls[:MAX_CALLS]


def _calls_in(line: str) -> Iterator[Call]:
    try:
        # Python reads an unknown escape as it stands, with a warning.
        known = _ESCAPE.sub(lambda match: match[0] if match[1] in _KNOWN_ESCAPES else f"\\{match[0]}", line)
        node = parse(known, "eval").body
        for each in node.elts if isinstance(node, ast.List | ast.Tuple) else [node]:
            if isinstance(each, ast.Call) and all(keyword.arg for keyword in each.keywords):
                keywords = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in each.keywords}
                positional = tuple(ast.literal_eval(argument) for argument in each.args)
                yield Call(ast.unparse(each.func), positional, keywords)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return  # prose, or arguments that are no plain values


def score_calls(wanted: Sequence[Wanted], agents: Sequence[str], responses: JointResponse) -> Score:
    """``F1 · (.5 + .5 · min_i recall_i)``, in [0, 1].

    F1 is that of all calls together against ``wanted``, each matched at most once, so a call made twice, by one agent
    or by two, is a false positive; so is a call by an agent that cannot make it. recall_i: the share made of the
    calls that only agent i can make; agents without any such call are left out of the minimum.
    """
    made = [(agent, call) for agent in agents for call in read_calls(responses[agent])]
    # Calls with one owner first: once matched, a wanted call stays matched, so none is lost to a shared one.
    order = sorted(range(len(wanted)), key=lambda index: len(wanted[index].owners) > 1)
    matched = _match([[k for k, (a, call) in enumerate(made) if wanted[i].accepts(a, call)] for i in order])
    done = [order[index] for index in matched]
    f1 = 2 * len(done) / (len(made) + len(wanted))
    recalls = {}
    for agent in agents:
        alone = [index for index, call in enumerate(wanted) if call.owners == {agent}]
        if alone:
            recalls[agent] = sum(index in done for index in alone) / len(alone)
    lowest = min(recalls.values(), default=1.0)
    missing = [wanted[index].name for index in range(len(wanted)) if index not in done]
    faults = [f"nobody called {', '.join(missing)}"] if missing else []
    if len(made) > len(done):
        faults.append(f"{len(made) - len(done)} calls wrong, repeated or not the agent's to make")
    return Score(
        reward=f1 * (0.5 + 0.5 * lowest),
        parts={"calls": float(len(made)), "matched": float(len(done)), "f1": f1, "min_recall": lowest},
        reason="; ".join(faults),
        is_success=len(done) == len(made) == len(wanted),
    )


def _match(choices: Sequence[Sequence[int]]) -> list[int]:
    """The indices of ``choices`` that a largest matching serves (by augmenting paths, in their order)."""
    owner: dict[int, int] = {}

    def serve(index: int, tried: set[int]) -> bool:
        for choice in choices[index]:
            if choice not in tried:
                tried.add(choice)
                if choice not in owner or serve(owner[choice], tried):
                    owner[choice] = index
                    return True
        return False

    return [index for index in range(len(choices)) if serve(index, set())]
