"""``comlrl/LeetPrint-v0``: one writes a function, the other prints that call it, each with the output it expects.

Purpose: the code example of the field. The function and the prints of it must agree, and neither author sees the
other's.

Roles: ``coder_0`` writes the function, ``tester_1`` a block of up to five lines ``print(f(…))  # output``. Both see the
problem. One simultaneous response.

Example (the first training item of seed 0)::

    both read          def distinct_rests_of_near(numbers: list[int]):
                           '''Return the number of different ones of the remainders modulo 4 of the numbers less than
                           40 away from zero.

                           >>> distinct_rests_of_near([-16, -20, -10, 28])
                           2
                           >>> distinct_rests_of_near([18, 34, 10, 16, 38])
                           2
                           '''
    coder_0 answers        ys = [x % 4 for x in numbers if abs(x) < 40]
                           return len(set(ys))
    tester_1 answers   print(distinct_rests_of_near([-18]))  # 1
                       print(distinct_rests_of_near([-16, -20, -10, 28]))  # 2
                       print(distinct_rests_of_near([18, 34, 10, 16, 38]))  # 2
                       print(distinct_rests_of_near([23, 17, 12, 13, 36, -4]))  # 3
                       print(distinct_rests_of_near([28, 20, -20, 3, 31, 13, -18, 25]))  # 4
    score              1.00 = .25 · 1 + .15 · 5

Reward, ``reward="strict"`` (default, in [0, 1])::

    .25 p + .15 n

p is the share of the problem's tests that the function passes; n, at most 5, counts prints that state the right output:
``print`` of exactly one call of the function with literal arguments, no two with the same arguments, on which the
problem's own solution, the function and the comment agree. A function alone earns .25, prints alone nothing. The
function runs in :mod:`comlrl_env.sandbox`, after the problem's imports; values are compared here, as plain data.

``reward="reference"`` (as published, in [0, 1])::

    .5 [function and prints parse as one program] + .1 · (prints whose comment is what the program prints, at most 5)

Its holes: the function may be wrong, and ``print(1)  # 1`` counts.

Figures (``python -m comlrl_env.figures comlrl/LeetPrint-v0 reward=…``, which takes a minute)::

    reward      gold   solo   random  five times ``print(i)  # i`` and no function
    strict      1.00   0.25   0.03    0.00
    reference   1.00   0.00   0.52    0.00

Solo: the coder writes the canonical solution, the tester nothing. Random: each returns or states an argument or a
constant.

Data: as for ``comlrl/CoopHumanEval-v0``; with ``data=…`` problems in HumanEval's fields (``openai/openai_humaneval``,
MIT; evaluation: the first 32 rows, training: the rest).

Versions: v0 first version.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from comlrl_env.rows import PublicData
from comlrl_env.sandbox import Box, Call, Module, NotPlainError, Outcome, Program, SandboxError
from comlrl_env.sandbox.values import encode
from comlrl_env.syntax import literal, parse
from comlrl_env.task import History, JointResponse
from comlrl_env.tasks.code.checks import Test
from comlrl_env.tasks.code.coop_human_eval import CoopHumanEval
from comlrl_env.tasks.code.team_task import PROBLEM_FIELDS, parsed_problem
from comlrl_env.types import Item, Score

CODER, TESTER = "coder_0", "tester_1"
MOST_PRINTS = 5
# Prints looked at, and characters of a block or a line: what is beyond them does not count.
LOOKED_AT = 20
MAX_TEXT = 20_000
MAX_LINE = 500


@dataclass(frozen=True)
class Print:
    """One line ``print(expression)  # comment``; ``arguments`` when it is one call of the function with literals."""

    expression: str
    comment: str
    arguments: tuple[Any, ...] | None


class LeetPrint(CoopHumanEval):
    """A function and prints of it; see the page above and :class:`RowsTask` for the arguments."""

    source = PublicData("openai/openai_humaneval", PROBLEM_FIELDS, {"train": "test", "eval": "test"}, 32)
    roles = (CODER, TESTER)
    reward_figures: ClassVar = {
        "strict": {"gold": 1.0, "solo": 0.25, "random": 0.03},
        "reference": {"gold": 1.0, "solo": 0.0, "random": 0.52},
    }

    def instructions(self, item: Item, history: History) -> dict[str, str]:
        """The problem and what to write."""
        entry, prompt = item.data["entry_point"], item.data["prompt"].rstrip()
        setting = "Two programmers work on one Python problem at the same time, without seeing each other's code."
        return {
            CODER: f"{setting} You are {CODER}. Write the function {entry}; {TESTER} prints some of its outputs.\n"
            f"The problem:\n{prompt}",
            TESTER: f"{setting} You are {TESTER}. {CODER} writes the function {entry}; write {MOST_PRINTS} lines "
            f"print({entry}(...))  # output, with different arguments and the right output behind each.\n"
            f"The problem:\n{prompt}",
        }

    def prompts(self, item: Item, history: History) -> dict[str, str]:
        """The instructions, ending where code goes on."""
        told = self.instructions(item, history)
        return {CODER: f"{told[CODER]}\n\nThe function:\n", TESTER: f"{told[TESTER]}\n\nThe prints:\n"}

    def messages(self, item: Item, history: History) -> dict[str, list[dict[str, str]]]:
        """The instructions as one user message for each agent."""
        return {agent: [{"role": "user", "content": text}] for agent, text in self.instructions(item, history).items()}

    def score(self, item: Item, history: History, responses: JointResponse) -> Score:
        """The reward of the page above; a broken sandbox is a failed score."""
        prints = read_prints(responses[TESTER], item.data["entry_point"])
        try:
            if self.reward == "reference":
                return self._reference(item, responses, prints)
            return self._strict(item, responses, prints)
        except SandboxError as error:
            return Score.failed("error", str(error))

    def _strict(self, item: Item, responses: JointResponse, prints: list[Print]) -> Score:
        entry, problem = item.data["entry_point"], parsed_problem(item.data)
        calls: dict[str, tuple[Call, Any]] = {}
        for each in prints:
            try:
                stated = literal(each.comment)
                name = repr(encode(each.arguments))
                encode(stated)
            except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError, NotPlainError):
                continue
            if each.arguments is not None:
                calls.setdefault(name, (Call(each.arguments), stated))
        asked = [call for call, _ in calls.values()][:LOOKED_AT]
        with Box(self.limits) as box:
            answer = box.read(responses[CODER], entry, problem.opening_author) or {"source": "", "returns": False}
            box.load(Program((Module("coder", problem.prelude + answer["source"]),), ("coder", entry)))
            known = {repr(encode(c.arguments)): o for c, o in zip(asked, box.run(asked), strict=True)}
            tests = problem.checks.run(lambda call: _ask(box, call))
        with Box(self.limits) as box:
            solution = Module("solution", item.data["prompt"] + item.data["canonical_solution"])
            box.load(Program((solution,), ("solution", entry)))
            right = box.run(asked)
        agreed = sum(
            truth.ok and known[repr(encode(call.arguments))].ok and _same(truth.value, known_value(known, call), stated)
            for truth, (call, stated) in zip(right, list(calls.values())[:LOOKED_AT], strict=True)
        )
        passed = sum(test.passed for test in tests) / len(tests)
        counted = min(agreed, MOST_PRINTS)
        reward = 0.25 * passed + 0.15 * counted
        parts = {"pass_rate": passed, "prints": float(len(prints)), "right": float(agreed)}
        return Score(reward=reward, parts=parts, reason=_reason(tests, counted), is_success=reward > 1 - 1e-9)

    def _reference(self, item: Item, responses: JointResponse, prints: list[Print]) -> Score:
        entry, problem = item.data["entry_point"], parsed_problem(item.data)
        with Box(self.limits) as box:
            answer = box.read(responses[CODER], entry, problem.opening_author) or {"source": "", "defines": False}
            if not (answer["defines"] and prints):
                return Score(reward=0.0, reason="no function, or no print that parses", is_success=False)
            shown = "".join(f"    lambda: str({each.expression}),\n" for each in prints[:LOOKED_AT])
            program = (
                f"{problem.prelude}{answer['source']}\n_shown = [\n{shown}]\ndef _show(n):\n    return _shown[n]()\n"
            )
            box.load(Program((Module("program", program),), ("program", "_show")))
            outputs = box.run([Call((number,)) for number in range(min(len(prints), LOOKED_AT))])
        right = sum(output.ok and output.value == each.comment for output, each in zip(outputs, prints, strict=False))
        counted = min(right, MOST_PRINTS)
        reason = "" if counted == MOST_PRINTS else f"{counted} prints state what the program prints"
        parts = {"parses": 0.5, "prints": float(len(prints)), "right": float(right)}
        return Score(reward=0.5 + 0.1 * counted, parts=parts, reason=reason, is_success=counted == MOST_PRINTS)

    def gold(self, item: Item, history: History = ()) -> dict[str, str]:
        """The canonical solution, and prints of the calls that the problem's tests make."""
        entry, problem = item.data["entry_point"], parsed_problem(item.data)
        source = item.data["prompt"] + item.data["canonical_solution"]
        with Box(self.limits) as box:
            box.load(Program((Module("solution", source),), ("solution", entry)))
            calls = [call for call in problem.checks.calls if not call.keywords]
            lines = [
                f"print({entry}({', '.join(map(repr, call.arguments))}))  # {outcome.value!r}"
                for call, outcome in zip(calls, box.run(calls), strict=True)
                if outcome.ok
            ]
        return {CODER: source, TESTER: "\n".join(lines[-MOST_PRINTS:])}

    def solo(self, item: Item, history: History = ()) -> dict[str, str]:
        """The coder writes the function, the tester nothing."""
        return {CODER: item.data["prompt"] + item.data["canonical_solution"], TESTER: ""}

    def sample_answers(self, item: Item, rng: np.random.Generator, history: History = ()) -> dict[str, str]:
        """The coder's function returns an argument or a constant; the tester states constants for small arguments."""
        coder = super().sample_answers(item, rng, history)["author_1"]
        entry = item.data["entry_point"]
        stated = ("0", "1", "[]", "''", "True", "None")
        lines = [
            f"print({entry}([{i}]))  # {stated[n]}"
            for i, n in enumerate(rng.integers(len(stated), size=MOST_PRINTS).tolist())
        ]
        return {CODER: coder, TESTER: "\n".join(lines)}


def read_prints(text: str, entry: str) -> list[Print]:
    """The lines ``print(expression)  # comment`` of an answer, read by the parser and never run here."""
    found: list[Print] = []
    for line in text[:MAX_TEXT].splitlines():
        code, mark, _ = line.strip().rpartition("#")
        if not (mark and code.startswith("print(") and len(line) <= MAX_LINE):
            continue
        # The comment begins at the first # after which what stands before it parses.
        pieces = line.strip().split("#")
        for count in range(1, len(pieces)):
            parsed = _parsed_print("#".join(pieces[:count]).strip(), entry)
            if parsed is not None:
                expression, arguments = parsed
                found.append(Print(expression, "#".join(pieces[count:]).strip(), arguments))
                break
        if len(found) == LOOKED_AT:
            break
    return found


def _parsed_print(code: str, entry: str) -> tuple[str, tuple[Any, ...] | None] | None:
    try:
        node = parse(code, "eval").body
        shown_text = ast.unparse(node)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"):
        return None
    if len(node.args) != 1 or node.keywords or isinstance(node.args[0], ast.Starred):
        return None
    (shown,) = node.args
    arguments: tuple[Any, ...] | None = None
    if isinstance(shown, ast.Call) and isinstance(shown.func, ast.Name) and shown.func.id == entry:
        try:
            arguments = None if shown.keywords else tuple(map(ast.literal_eval, shown.args))
        except (ValueError, TypeError, RecursionError, MemoryError):
            arguments = None
    return shown_text[len("print(") : -1], arguments


def known_value(known: Mapping[str, Outcome], call: Call) -> Any:
    """What the function gave for a call."""
    return known[repr(encode(call.arguments))].value


def _same(truth: Any, *others: Any) -> bool:
    """Equal and of equal types all the way down: ``True`` is not 1."""
    return all(encode(other) == encode(truth) and type(other) is type(truth) for other in others)


def _ask(box: Box, call: Call) -> Outcome:
    (outcome,) = box.run([call])
    return outcome


def _reason(tests: list[Test], counted: int) -> str:
    failed = [test for test in tests if not test.passed]
    said = [f"{len(failed)} of {len(tests)} tests fail, first: {failed[0].text}: {failed[0].failure}"] if failed else []
    if counted < MOST_PRINTS:
        said.append(f"{counted} prints on which solution, function and comment agree")
    return "; ".join(said)
