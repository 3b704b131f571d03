"""``comlrl/CrossFile-v0``: the modules of one package, each by another author, joined by a naming rule.

Purpose: an interface that nobody has written down. Who imports a function must call it by the name that its author,
following the same rule, gave it; what it computes only its author knows.

Roles: ``author_0`` … ``author_{n-1}`` (n = 2 or 3). The last writes the module ``orders`` with the function ``total``;
each other a module (``stock``, then ``rates``) with functions that ``total`` needs. They answer at once. The code runs
in :mod:`comlrl_env.sandbox`.

Example (level 0; the first training item of seed 0)::

    author_0 is told   You are author_0 of 2 authors of one package; you write the module stock. Its functions take
                       an integer x: the volume of iron for x is 4 times x, plus 17. A function that gives the WHAT
                       of THING is named by the rule WHAT_of_THING, such as size_of_lamp. Write only your module, as
                       Python code.
    author_1 is told   You are author_1 of 2 authors of one package; you write the module orders. It has the
                       function total(x), for an integer x: 2 times the volume of iron (module stock), each for x;
                       minus 16. Import these functions from their modules. A function that gives the WHAT of THING
                       is named by the rule WHAT_of_THING, such as size_of_lamp. Write only your module, as Python
                       code.
    author_0 answers   def volume_of_iron(x):
                           return 4 * x + 17

    author_1 answers   from stock import volume_of_iron

                       def total(x):
                           return 2 * volume_of_iron(x) - 16

    score              1

Reward, in [0, 1]: .1 · (share of modules that can be imported and define what they must) + .9 · (share of integration
tests passed). A test calls ``total`` with a number; it passes when the value is right and a function of another module
was called for it, so each touches two modules at least.

Levels: 0 one function in each module, always the same rule; 1 two functions, the rule is drawn from four; 2 the
functions also have a threshold.

Figures (``python -m comlrl_env.figures comlrl/CrossFile-v0 num_items=64``; the same at all levels, two authors)::

    gold     1.00
    solo      .05   author_0 writes its module, the others nothing (.00 for the last author alone)
    random    .10   modules with the right names and random numbers

Data: written for this project, Apache-2.0. Items of train and eval, and of neighbouring seeds, are disjoint by
construction: the number that ``total`` subtracts is 2·(0 in train, 1 in eval) + (seed modulo 2), modulo 4.

Versions: v0 first version.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from comlrl_env.errors import TaskError
from comlrl_env.procedural import ProceduralTask
from comlrl_env.sandbox import Box, Call, Link, Module, Program, SandboxError
from comlrl_env.task import History, JointResponse
from comlrl_env.types import Item, Score

PROVIDERS, CONSUMER, ENTRY = ("stock", "rates"), "orders", "total"
KINDS = ("price", "weight", "volume", "tax", "bonus", "fee", "cost", "rebate")
THINGS = ("tea", "salt", "rice", "oil", "silk", "wool", "iron", "wood")
# How a rule is stated (with words that no item uses), and the name that it gives.
RULES = (
    ("WHAT_of_THING, such as size_of_lamp", "{what}_of_{thing}"),
    ("THING_WHAT, such as lamp_size", "{thing}_{what}"),
    ("get_WHAT_THING, such as get_size_lamp", "get_{what}_{thing}"),
    ("whatThing, such as sizeLamp", "{what}{Thing}"),
)
TESTS = (1, 2, 5, 11, 20, 37)
# Makes the functions that a module is given importable from their module too.
_IMPORTABLE = """\
import sys, types
for _name in {names!r}:
    if _name in globals():
        sys.modules.setdefault({module!r}, types.ModuleType({module!r})).__dict__[_name] = globals()[_name]
"""


class CrossFile(ProceduralTask):
    """Modules that fit together; see the page above. ``num_agents``: 2 or 3."""

    figures: Mapping[str, float] = {"gold": 1.0, "solo": 0.05, "random": 0.1}
    role = "author"
    team_sizes = (2, 3)

    def __init__(self, **arguments: Any) -> None:
        if sys.platform != "linux":
            raise TaskError(f"CrossFile: its sandbox needs Linux, actually this is {sys.platform}")
        super().__init__(**arguments)

    def build(self, rng: np.random.Generator, split: str) -> dict[str, Any]:
        """``rule``; ``functions``: [module, what, thing, name, a, b, threshold, times]; ``minus``: a number."""
        rule = int(rng.integers(len(RULES))) if self.level else 0
        count = 2 if self.level else 1
        modules = [module for module in PROVIDERS[: len(self.agents) - 1] for _ in range(count)]
        kinds = rng.permutation(len(KINDS)).tolist()
        things = rng.permutation(len(THINGS)).tolist()
        numbers = rng.integers((2, 1, 3, 2), (10, 21, 30, 6), size=(len(modules), 4)).tolist()
        functions = []
        for i, module in enumerate(modules):
            what, thing = KINDS[kinds[i]], THINGS[things[i]]
            name = RULES[rule][1].format(what=what, thing=thing, Thing=thing.capitalize())
            a, b, threshold, times = numbers[i]
            functions.append([module, what, thing, name, a, b, threshold if self.level == 2 else 0, times])
        return {"rule": rule, "functions": functions, "minus": 4 * int(rng.integers(1, 10)) + self.item_class(split)}

    def instructions(self, item: Item, history: History) -> dict[str, str]:
        """What the agent's module must provide, and the rule of the names."""
        rule = (
            f"A function that gives the WHAT of THING is named by the rule {RULES[item.data['rule']][0]}. "
            "Write only your module, as Python code."
        )
        told = {}
        for agent, module in zip(self.agents, self._modules(), strict=True):
            opening = f"You are {agent} of {len(self.agents)} authors of one package; you write the module {module}."
            if module == CONSUMER:
                named = [f"{f[7]} times the {f[1]} of {f[2]} (module {f[0]})" for f in item.data["functions"]]
                told[agent] = (
                    f"{opening} It has the function {ENTRY}(x), for an integer x: {', plus '.join(named)}, each for x; "
                    f"minus {item.data['minus']}. Import these functions from their modules. {rule}"
                )
            else:
                own = [function for function in item.data["functions"] if function[0] == module]
                named = [f"the {f[1]} of {f[2]} for x is {described(f)}" for f in own]
                told[agent] = f"{opening} Its functions take an integer x: {'; '.join(named)}. {rule}"
        return told

    def score(self, item: Item, history: History, responses: JointResponse) -> Score:
        """The reward of the page above with the parts importable and tests; a broken sandbox is a failed score."""
        try:
            with Box() as box:
                return self._score(box, item, responses)
        except SandboxError as error:
            return Score.failed("error", str(error))

    def gold(self, item: Item, history: History = ()) -> dict[str, str]:
        """Every module as it is meant."""
        return self._write(item, [(f[4], f[5]) for f in item.data["functions"]], item.data["minus"])

    def sample_answers(self, item: Item, rng: np.random.Generator, history: History = ()) -> dict[str, str]:
        """The right names with random numbers."""
        numbers = rng.integers(1, 100, size=(len(item.data["functions"]), 2)).tolist()
        return self._write(item, [(a, b) for a, b in numbers], int(rng.integers(1, 40)))

    def _modules(self) -> tuple[str, ...]:
        return (*PROVIDERS[: len(self.agents) - 1], CONSUMER)

    def _score(self, box: Box, item: Item, responses: JointResponse) -> Score:
        functions: Sequence[Any] = item.data["functions"]
        wanted = {
            module: [f[3] for f in functions if f[0] == module] if module != CONSUMER else [ENTRY]
            for module in self._modules()
        }
        given = {f[3]: Link(f[0], f[3], watch=True) for f in functions}
        shims = "".join(
            _IMPORTABLE.format(names=names, module=module) for module, names in wanted.items() if module != CONSUMER
        )
        # All answers are read before any of their code has run.
        sources = {}
        for agent, module in zip(self.agents, self._modules(), strict=True):
            read = box.read(responses[agent], wanted[module][0])
            sources[module] = read["source"] if read else ""
        loaded: list[Module] = []
        faults = []
        for module, names in wanted.items():
            consumer = module == CONSUMER
            each = Module(module, shims + sources[module] if consumer else sources[module], given if consumer else {})
            outcomes = [box.load(Program((*loaded, each), (module, name))) for name in names]
            failed = [outcome for outcome in outcomes if not outcome.ok]
            if failed:
                faults.append(f"{module}: {failed[0].reason or failed[0].kind}")
                loaded.append(Module(module, ""))
            else:
                loaded.append(each)
        importable = 1 - len(faults) / len(wanted)
        passed = 0
        if loaded[-1].source:
            box.load(Program(tuple(loaded), (CONSUMER, ENTRY)))
            outcomes = box.run([Call((x,)) for x in TESTS])
            for x, outcome in zip(TESTS, outcomes, strict=True):
                right = outcome.ok and type(outcome.value) is int and outcome.value == expected(item, x)
                passed += bool(right and outcome.watched)
                if not right and len(faults) < len(wanted):
                    got = outcome.value if outcome.ok else outcome.reason
                    faults.append(f"{ENTRY}({x}) gives {got!r:.80}, not {expected(item, x)}")
        share = passed / len(TESTS)
        return Score(
            reward=0.1 * importable + 0.9 * share,
            parts={"importable": importable, "tests": share},
            reason="; ".join(faults) if faults else "" if share == 1 else "total does without the other modules",
            is_success=importable == share == 1,
        )

    def _write(self, item: Item, numbers: list[tuple[int, int]], minus: int) -> dict[str, str]:
        written = dict.fromkeys(self._modules(), "")
        imports, terms = [], []
        for (module, _, _, name, _, _, threshold, times), (a, b) in zip(item.data["functions"], numbers, strict=True):
            more = f"({b} if x > {threshold} else 0)" if threshold else str(b)
            written[module] += f"def {name}(x):\n    return {a} * x + {more}\n"
            imports.append(f"from {module} import {name}\n")
            terms.append(f"{times} * {name}(x)")
        written[CONSUMER] = f"{''.join(imports)}\ndef {ENTRY}(x):\n    return {' + '.join(terms)} - {minus}\n"
        return dict(zip(self.agents, written.values(), strict=True))


def described(function: Sequence[Any]) -> str:
    """What a function computes, in words."""
    _, _, _, _, a, b, threshold, _ = function
    return f"{a} times x, plus {b}" + (f" if x is greater than {threshold}" if threshold else "")


def expected(item: Item, x: int) -> int:
    """The value of ``total``."""
    values = [
        times * (a * x + (b if x > threshold else 0)) for _, _, _, _, a, b, threshold, times in item.data["functions"]
    ]
    return int(sum(values)) - int(item.data["minus"])
