"""``comlrl/BFCLParallel-v0``: requests of a public leaderboard that need several calls, divided among two callers.

Purpose: ``comlrl/JointCalls-v0`` on requests and tools that others have written: two to eight calls of documented
functions, with nested values, optional arguments and several accepted spellings.

Roles: ``caller_0`` makes the first half of the calls (rounded up), ``caller_1`` the rest, in the order of the request.
Both read the request and all functions. One simultaneous response, one call per line, parsed and never executed.

Example (the first training item)::

    caller_0 is told   You are caller_0 of 2. Together make every call that the request needs, none twice. You make
                       the first half (rounded up) of the calls, in the order of the request. Write only calls, one
                       per line, as in f(x=1, y='a').
                       Request: Give me the detail of the exhibition named 'Wonder of Nature' in the Louvre museum,
                       and 'Age of Reptiles' in the British Museum. Plus their cost per visit for children and adult.
                       Functions:
                       museum.exhibition_detail(exhibition_name, museum_name, [visitor_type]): Provides details of a
                       particular exhibition in a museum, including the cost per visit for different age groups.
                         exhibition_name (string): The name of the exhibition.
                         museum_name (string): The name of the museum.
                         visitor_type (array of string, optional): Age group of the visitor. Default is: ['adult']
    caller_1 is told   the same with its own name and half
    caller_0 answers   museum.exhibition_detail(exhibition_name='Wonder of Nature', museum_name='Louvre',
                       visitor_type=['child', 'adult'])
    caller_1 answers   museum.exhibition_detail(exhibition_name='Age of Reptiles', museum_name='British Museum',
                       visitor_type=['child', 'adult'])
    score              1.00

Reward, ``reward="strict"`` (default, in [0, 1]): that of ``comlrl/JointCalls-v0``, F1 · (.5 + .5 · min_i recall_i),
where only the named half of the calls is caller i's to make. A call matches when its name and all arguments do; an
argument that accepts "" may be left out; numbers compare by value, texts without case and blanks.

``reward="reference"`` (as published, in [−.45, 1.10])::

    .05 parsed + .25 name F1 + .35 argument match + .10 count + .15 balance + .20 exact
    − .20 overlap − .15 lazy − .05 extra − .05 duplicate

For k wanted and m made calls (m_i by caller i): *parsed* the share of lines that are calls; *name F1* over the names,
each as often as it occurs; *argument match* the wanted calls matched / k; *count* max(0, 1 − |m − k|/k); *balance* the
smaller m_i / ⌊m/2⌋; *exact* 1 if all are matched and no other is made; *lazy* the share of callers without a call;
*extra* (m − k)/k within [0, 1]; *overlap* the share of k that both made (at most 1), *duplicate* the share of m that
its caller had made before, both 0 where *exact* is 1. The weights are published; what a part is between 0 and 1 is
written down here. A lone caller that makes every call scores .875: the published reward does not say which are whose.

Levels: 0 one function, called several times (200 requests); 1 several functions to choose from (200); 2 both.

Figures (``python -m comlrl_env.figures comlrl/BFCLParallel-v0 reward=… level=…``; level 0, 1, 2)::

    reward      gold              solo               random             both make every call; one makes all
    strict      1.00  1.00  1.00  0.35  0.36  0.35   0.00  0.00  0.00   0.67; 0.28
    reference   1.10  1.10  1.10  0.40  0.41  0.40   0.53  0.46  0.50   0.47; 0.875

Solo: caller_0 makes its half, caller_1 nothing. Random: each calls random functions with the request's words or numbers
as arguments, half as often as calls are wanted.

Data: 400 rows of the Berkeley Function-Calling Leaderboard v4, categories parallel and parallel_multiple, from the PyPI
wheel ``bfcl-eval`` 2026.3.23 (Apache-2.0, the BFCL authors, University of California, Berkeley; Patil et al., 2025), in
``bfcl_parallel.json.gz`` with its notice, which says what was changed. eval: the first 40 of each category, training:
the rest.

Versions: v0 first version.
"""

import gzip
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any, ClassVar

import numpy as np

from comlrl_env.errors import TaskError
from comlrl_env.items import check_count, check_split
from comlrl_env.task import History, JointResponse
from comlrl_env.tasks.calls.matching import Call, Wanted, read_calls, score_calls
from comlrl_env.types import Item, Score

AGENTS = ("caller_0", "caller_1")
EVAL_ROWS = 40
BEST = 1.1
_CATEGORIES = (("parallel",), ("parallel_multiple",), ("parallel", "parallel_multiple"))
_WEIGHTS = {
    "parsed": 0.05,
    "name_f1": 0.25,
    "argument_match": 0.35,
    "count": 0.1,
    "balance": 0.15,
    "exact": 0.2,
    "overlap": -0.2,
    "lazy": -0.15,
    "extra": -0.05,
    "duplicate": -0.05,
}
_WORD = re.compile(r"[A-Za-z]{3,}|\d+")


class BFCLParallel:
    """Requests that two callers divide; see the page above. Raises :class:`TaskError` for arguments out of range."""

    agents = AGENTS
    num_turns = 1
    attack_ceiling = 2 / 3
    levels = (0, 2)
    data_source = "400 embedded rows"
    reward_figures: ClassVar[Mapping[str, Mapping[str, float]]] = {
        "strict": {"gold": 1.0, "solo": 0.35, "random": 0.0},
        "reference": {"gold": 1.1, "solo": 0.4, "random": 0.53},
    }

    def __init__(self, reward: str = "strict", *, level: int = 0) -> None:
        if reward not in self.reward_figures:
            raise TaskError(f"reward: expected 'strict' or 'reference', actually {reward!r}")
        self.reward = reward
        self.figures = self.reward_figures[reward]
        self.level = check_count("level", level, *self.levels)

    def items(self, split: str) -> Sequence[Item]:
        """Items whose data hold ``request``, ``functions`` and the wanted ``calls`` (name, accepted values)."""
        part = slice(EVAL_ROWS) if check_split(split) == "eval" else slice(EVAL_ROWS, None)
        return [item for category in _CATEGORIES[self.level] for item in rows(category)[part]]

    def prompts(self, item: Item, history: History) -> dict[str, str]:
        """The instructions, ending with a cue."""
        return {agent: f"{text}\nCalls:" for agent, text in self.instructions(item, history).items()}

    def messages(self, item: Item, history: History) -> dict[str, list[dict[str, str]]]:
        """The instructions as one user message for each agent."""
        return {agent: [{"role": "user", "content": text}] for agent, text in self.instructions(item, history).items()}

    def instructions(self, item: Item, history: History) -> dict[str, str]:
        """The request, the functions, and whose half is whose."""
        functions = "\n".join(map(described, item.data["functions"]))
        halves = dict(zip(AGENTS, ("first half (rounded up)", "second half (rounded down)"), strict=True))
        return {
            agent: (
                f"You are {agent} of 2. Together make every call that the request needs, none twice. You make the "
                f"{half} of the calls, in the order of the request. Write only calls, one per line, as in "
                "f(x=1, y='a').\n"
                f"Request: {item.data['request']}\nFunctions:\n{functions}"
            )
            for agent, half in halves.items()
        }

    def score(self, item: Item, history: History, responses: JointResponse) -> Score:
        """The reward of the page above."""
        calls = item.data["calls"]
        if self.reward == "strict":
            half = -(-len(calls) // 2)
            wanted = [Wanted(n, v, frozenset({AGENTS[i >= half]})) for i, (n, v) in enumerate(calls)]
            return score_calls(wanted, AGENTS, responses)
        return _reference([Wanted(name, values, frozenset(AGENTS)) for name, values in calls], responses)

    def gold(self, item: Item, history: History = ()) -> dict[str, str]:
        """Each caller's half, with the first accepted values."""
        lines = [written(name, values) for name, values in item.data["calls"]]
        half = -(-len(lines) // 2)
        return {AGENTS[0]: "\n".join(lines[:half]), AGENTS[1]: "\n".join(lines[half:])}

    def solo(self, item: Item, history: History = ()) -> dict[str, str]:
        """The first caller makes its half, the second nothing."""
        return {AGENTS[0]: self.gold(item)[AGENTS[0]], AGENTS[1]: ""}

    def sample_answers(self, item: Item, rng: np.random.Generator, history: History = ()) -> dict[str, str]:
        """Random functions with words and numbers of the request, half as many for each as are wanted."""
        words = [json.loads(w) if w.isdigit() and w[0] != "0" else w for w in _WORD.findall(item.data["request"])]
        answers = {}
        for agent in AGENTS:
            lines = []
            for _ in range(-(-len(item.data["calls"]) // 2)):
                function = item.data["functions"][int(rng.integers(len(item.data["functions"])))]
                names = [p["name"] for p in function["parameters"] if "optional" not in p]
                lines.append(written(function["name"], {n: [words[int(rng.integers(len(words)))]] for n in names}))
            answers[agent] = "\n".join(lines)
        return answers


@lru_cache(maxsize=2)
def rows(category: str) -> tuple[Item, ...]:
    """The 200 embedded rows of a category, ``"parallel"`` or ``"parallel_multiple"``."""
    packed = resources.files(__package__).joinpath("bfcl_parallel.json.gz").read_bytes()
    found = []
    for row in json.loads(gzip.decompress(packed))["rows"]:
        if row["id"].rpartition("_")[0] == category:
            found.append(Item(key=row["id"], data={name: row[name] for name in ("request", "functions", "calls")}))
    return tuple(found)


def described(function: Mapping[str, Any]) -> str:
    """A function as a signature with its description, and one line for each parameter."""
    parameters = function["parameters"]
    names = ", ".join(f"[{p['name']}]" if "optional" in p else p["name"] for p in parameters)
    return "\n".join([f"{function['name']}({names}): {function['about']}", *map(_parameter, parameters)])


def _parameter(parameter: Mapping[str, Any], indent: str = "  ") -> str:
    optional = ", optional" if "optional" in parameter else ""
    choices = f" One of {', '.join(map(str, parameter['enum']))}." if "enum" in parameter else ""
    line = f"{indent}{parameter['name']} ({parameter['type']}{optional}): {parameter['about']}{choices}"
    return "\n".join([line, *(_parameter(field, indent + "  ") for field in parameter.get("fields", ()))])


def written(name: str, values: Mapping[str, Sequence[Any]]) -> str:
    """A call with the first accepted values; arguments that may be left out are."""
    given = [f"{key}={accepted[0]!r}" for key, accepted in values.items() if "" not in accepted]
    return f"{name}({', '.join(given)})"


def _reference(wanted: Sequence[Wanted], responses: JointResponse) -> Score:
    made = {agent: read_calls(responses[agent]) for agent in AGENTS}
    everything = [call for calls in made.values() for call in calls]
    lines = sum(bool(line.strip()) for agent in AGENTS for line in responses[agent].splitlines())
    joint = score_calls(wanted, AGENTS, responses)
    matched, k, m = int(joint.parts["matched"]), len(wanted), len(everything)
    both = sum((_counted(made[AGENTS[0]]) & _counted(made[AGENTS[1]])).values())
    names = sum((Counter(call.name for call in everything) & Counter(call.name for call in wanted)).values())
    repeated = sum(n - 1 for calls in made.values() for n in _counted(calls).values())
    sizes = sorted(len(calls) for calls in made.values())
    exact = matched == k == m
    if exact:  # three rows want one call twice
        both = repeated = 0
    values = {
        "parsed": min(1.0, m / lines) if lines else 0.0,
        "name_f1": 2 * names / (m + k),
        "argument_match": matched / k,
        "count": max(0.0, 1 - abs(m - k) / k),
        "balance": sizes[0] / (m // 2) if m > 1 else 0.0,
        "exact": float(exact),
        "overlap": min(1.0, both / k),
        "lazy": sizes.count(0) / len(AGENTS),
        "extra": min(1.0, max(0, m - k) / k),
        "duplicate": repeated / m if m else 0.0,
    }
    parts = {name: _WEIGHTS[name] * value for name, value in values.items()}
    reward = sum(parts.values())
    reason = joint.reason or ("" if reward > BEST - 1e-9 else "the callers do not make as many calls each")
    return Score(reward=reward, parts=parts, reason=reason, is_success=reward > BEST - 1e-9)


def _counted(calls: Sequence[Call]) -> Counter[str]:
    return Counter(repr((call.name, call.positional, sorted(call.keywords.items(), key=str))) for call in calls)
