"""Oracles: whatever a scorer does costs one status, keeps the order, and leaves no process behind."""

import copy
import math
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from comlrl_env.errors import ConfigError, TaskError
from comlrl_env.judges import judge_reward
from comlrl_env.oracles import Oracle
from comlrl_env.types import Item, Score, Turn

ITEM = Item("k", {"bonus": 1})


def behave(text):
    """What a scorer does is written in the text that it scores."""
    word, _, number = text.partition(" ")
    if word == "hang":
        while True:
            pass
    if word == "exit":
        os._exit(7)
    if word == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "grow":
        return float(len([0] * 10**10))
    if word == "sleep":
        time.sleep(float(number))
    if word == "raise":
        raise ValueError("no é")
    if word == "leave":
        raise SystemExit(1)
    if word == "pid":
        return float(os.getpid())
    return float(len(text))


class Scorer:
    agents = ("a_0", "b_1")
    num_turns = 1

    def __init__(self):
        self.calls = []

    def items(self, split):
        return [ITEM]

    def prompts(self, item, history):
        return dict.fromkeys(self.agents, "")

    def score(self, item, history, responses):
        self.calls.append(responses["a_0"])
        value = behave(responses["a_0"])
        return 0.5 if responses["b_1"] == "no Score" else Score(reward=value + item.data["bonus"])


class ManyScorer(Scorer):
    def score_many(self, item, history, joint_responses):
        self.calls.append(len(joint_responses))
        if any(responses["a_0"] == "short" for responses in joint_responses):
            return []
        return [Score(reward=behave(responses["a_0"])) for responses in joint_responses]


def joint(*texts, other=""):
    return [{"a_0": text, "b_1": other} for text in texts]


def rewards(scored):
    return [entry.score.reward for entry in scored]


def statuses(scored):
    return [entry.score.status for entry in scored]


def gone(pid):
    """Whether a process has ended and been waited for."""
    for _ in range(200):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def make():
    made = []

    def build(task=None, **options):
        made.append(Oracle(task or Scorer(), **options))
        return made[-1]

    yield build
    for oracle in made:
        oracle.close()


@pytest.mark.parametrize("options", [{}, {"workers": 3}, {"workers": 2, "timeout": 20.0}])
def test_order_statuses_and_reasons(make, options):
    oracle = make(**options)
    texts = ["sleep 0.2", "raise", "", "é" * 1000, "leave", "sleep 0.05", "\ud800"]
    scored = oracle.score_many(ITEM, (), joint(*texts))
    assert statuses(scored) == ["ok", "error", "ok", "ok", "error", "ok", "ok"]
    assert [value for value in rewards(scored) if not math.isnan(value)] == [10, 1, 1001, 11, 2]
    assert scored[1].score.reason == "ValueError: no é"
    assert scored[4].score.reason == "SystemExit: 1"
    assert 0.2 <= scored[0].latency < 5
    assert oracle.score_many(ITEM, (), []) == []
    (bad,) = oracle.score_many(ITEM, (), joint("x", other="no Score"))
    assert bad.score.reason == "expected a Score from the scorer, actually 0.5"


def test_hanging_and_dying_scorers_cost_one_status_each(make):
    oracle = make(workers=2, timeout=0.8, memory=1 << 28)
    texts = ["fine", "hang", "exit", "grow", "die", "fine", "hang", "fine too"]
    started = time.monotonic()
    scored = oracle.score_many(ITEM, (), joint(*texts))
    assert time.monotonic() - started < 5
    assert statuses(scored) == ["ok", "timeout", "error", "error", "error", "ok", "timeout", "ok"]
    assert [rewards(scored)[k] for k in (0, 5, 7)] == [5, 5, 9]
    assert scored[1].score.reason == "the scorer did not answer within 0.8 s"
    assert scored[1].latency == 0.8
    assert scored[2].score.reason == "the scorer's process died (exit code 7)"
    assert scored[3].score.reason.startswith("MemoryError")
    assert scored[4].score.reason == "the scorer's process died (signal 9)"
    assert rewards(oracle.score_many(ITEM, (), joint("next"))) == [5]


def test_workers_work_side_by_side(make):
    for options in ({"workers": 4}, {"workers": 4, "timeout": 10}):
        started = time.monotonic()
        make(**options).score_many(ITEM, (), joint(*["sleep 0.3"] * 8))
        assert 0.6 <= time.monotonic() - started < 1.8, options  # eight in a row would take 2.4 s


def test_other_threads_may_score_under_a_timeout(make):
    oracle = make(timeout=0.5)
    answers = {}

    def work(name):
        answers[name] = oracle.score_many(ITEM, (), joint("hang", name))

    threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "bb", "ccc")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: rewards(scored)[1] for name, scored in answers.items()} == {"a": 2, "bb": 3, "ccc": 4}
    assert all(statuses(scored)[0] == "timeout" for scored in answers.values())


def test_an_oracle_may_be_made_in_another_thread():
    made = []
    thread = threading.Thread(target=lambda: made.append(Oracle(Scorer(), timeout=5)))
    thread.start()
    thread.join()
    assert rewards(made[0].score_many(ITEM, (), joint("x"))) == [2]
    made[0].close()


def test_closures_and_large_texts(make):
    factor = 3

    class Closure(Scorer):
        def __init__(self):
            self.rule = lambda text: float(factor * len(text))

        def score(self, item, history, responses):
            return Score(reward=self.rule(responses["a_0"]), parts={"turns": float(len(history))})

    turn = Turn({"a_0": "p", "b_1": "q"}, {"a_0": "r", "b_1": "s"}, Score(reward=0.0))
    scored = make(Closure(), timeout=20).score_many(ITEM, (turn,), joint("é" * 2_000_000, "x"))
    assert rewards(scored) == [6_000_000, 3]
    assert scored[0].score.parts == {"turns": 1.0}


def test_items_that_cannot_travel_are_named(make):
    oracle = make(timeout=5)
    with pytest.raises(TaskError, match="item 'odd': expected data that can be pickled"):
        oracle.score_many(Item("odd", {"f": lambda: 0}), (), joint("x"))
    assert rewards(oracle.score_many(ITEM, (), joint("x"))) == [2]


def test_what_a_scorer_starts_dies_with_it(make, tmp_path):
    class Starter(Scorer):
        def score(self, item, history, responses):
            child = subprocess.Popen(["sleep", "1000"])
            with open(responses["a_0"], "w") as file:
                file.write(f"{os.getpid()} {child.pid}")
            while True:
                time.sleep(1)

    path = tmp_path / "pids"
    assert statuses(make(Starter(), timeout=0.7).score_many(ITEM, (), joint(str(path)))) == ["timeout"]
    assert all(gone(int(pid)) for pid in path.read_text().split())


def test_a_dead_host_fails_its_batch_and_is_replaced(make):
    oracle = make(timeout=30)
    (first,) = oracle.score_many(ITEM, (), joint("pid"))
    worker = int(first.score.reward - 1)
    with open(f"/proc/{worker}/status") as file:
        host = int(next(line for line in file if line.startswith("PPid:")).split()[1])
    timer = threading.Timer(0.3, os.kill, (host, signal.SIGKILL))
    timer.start()
    scored = oracle.score_many(ITEM, (), joint("sleep 20", "x"))
    timer.join()
    assert statuses(scored) == ["error", "error"]
    assert "the scoring host died" in scored[0].score.reason
    assert gone(worker)
    assert rewards(oracle.score_many(ITEM, (), joint("x"))) == [2]


def test_close_and_copies(make):
    for options in ({}, {"workers": 2}, {"timeout": 20}, {"workers": 1, "timeout": 20, "cache_size": 3}):
        oracle = make(**options)
        oracle.score_many(ITEM, (), joint("x"))
        for twin in (copy.deepcopy(oracle), pickle.loads(pickle.dumps(oracle))):
            assert vars(twin)["timeout"] == options.get("timeout")
            assert rewards(twin.score_many(ITEM, (), joint("xy"))) == [3]
            twin.close()
            twin.close()
            assert rewards(twin.score_many(ITEM, (), joint("xy", "xyz"))) == [3, 4]
            twin.close()


def test_close_leaves_no_process(make):
    oracle = make(workers=2, timeout=20)
    pids = {int(value - 1) for value in rewards(oracle.score_many(ITEM, (), joint("pid", "sleep 0.2", "pid")))}
    oracle.close()
    assert all(gone(pid) for pid in pids if pid > 100)


SCRIPT = """
    import os, signal, sys, time
    from comlrl_env.oracles import Oracle
    from comlrl_env.types import Item, Score

    class Scorer:
        agents, num_turns = ("a_0",), 1
        def score(self, item, history, responses):
            with open(sys.argv[1], "a") as file:
                file.write(f"{os.getpid()} {os.getppid()} ")
            while responses["a_0"] == "hang":
                pass
            return Score(reward=1.0)

    oracle = Oracle(Scorer(), workers=2, timeout=60 if sys.argv[2] == "kill" else 2)
    oracle.score_many(Item("k", {}), (), [{"a_0": "x"}] * 4)
    if sys.argv[2] == "kill":
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        oracle.score_many(Item("k", {}), (), [{"a_0": "hang"}] * 2)
    if sys.argv[2] == "interrupt":
        signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            oracle.score_many(Item("k", {}), (), [{"a_0": "hang"}] * 2)
        except KeyboardInterrupt:
            print(oracle.score_many(Item("k", {}), (), [{"a_0": "x"}])[0].score.reward)
    if sys.argv[2] == "raise":
        raise RuntimeError("the end")
"""


@pytest.mark.parametrize("end", ["normal", "raise", "interrupt", "kill"])
def test_no_process_outlives_ours(tmp_path, end):
    notes = tmp_path / "pids"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), str(notes), end],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert done.returncode == {"normal": 0, "raise": 1, "interrupt": 0, "kill": -9}[end], done.stderr
    if end == "interrupt":
        assert done.stdout == "1.0\n"
        assert done.stderr == ""
    pids = {int(pid) for pid in notes.read_text().split()}
    assert len(pids) >= 2
    assert all(gone(pid) for pid in pids)


def test_fork_of_our_process_starts_its_own_host(make):
    oracle = make(timeout=20)
    assert rewards(oracle.score_many(ITEM, (), joint("x"))) == [2]
    child = os.fork()
    if child == 0:
        ok = rewards(oracle.score_many(ITEM, (), joint("xy"))) == [3]
        oracle.close()
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert rewards(oracle.score_many(ITEM, (), joint("xyz"))) == [4]


def test_score_many_of_the_task_is_used_and_one_bad_response_does_not_spoil_it(make):
    task = ManyScorer()
    assert rewards(make(task).score_many(ITEM, (), joint("x", "xy"))) == [1, 2]
    assert task.calls == [2]
    for trouble in ("raise", "leave", "short"):
        task = ManyScorer()
        scored = make(task).score_many(ITEM, (), joint("x", trouble))
        assert statuses(scored) == ["ok", "ok" if trouble == "short" else "error"]
        assert task.calls == [2, "x", trouble]
    task = ManyScorer()
    assert rewards(make(task, workers=2).score_many(ITEM, (), joint(*"abcde"))) == [1] * 5
    assert sorted(task.calls) == [2, 3]


def test_cache_scores_each_joint_response_once(make):
    task = Scorer()
    oracle = make(task, cache_size=3)
    assert rewards(oracle.score_many(ITEM, (), joint("a", "bb", "a"))) == [2, 3, 2]
    again = oracle.score_many(ITEM, (), joint("bb", "ccc"))
    assert rewards(again) == [3, 4]
    assert again[0].latency == 0
    assert task.calls == ["a", "bb", "ccc"]
    oracle.score_many(Item("other", {"bonus": 0}), (), joint("a"))
    turn = Turn({"a_0": "p", "b_1": "q"}, {"a_0": "r", "b_1": "s"}, Score(reward=0.0))
    oracle.score_many(ITEM, (turn,), joint("a"))
    assert task.calls[3:] == ["a", "a"]  # another item, another history; three scores are kept, the oldest goes
    oracle.score_many(ITEM, (), joint("a", "ccc"))
    assert task.calls[5:] == ["a"]
    oracle.score_many(ITEM, (), joint("raise"))
    oracle.score_many(ITEM, (), joint("raise"))
    assert task.calls[6:] == ["raise", "raise"]  # failures are asked again


def test_inline_overhead_is_microseconds(make):
    class Cheap(Scorer):
        def score(self, item, history, responses):
            return constant

    constant = Score(reward=1.0)
    oracle, responses = make(Cheap()), joint(*["text"] * 2000)
    best = math.inf
    for _ in range(5):
        start = time.process_time()
        oracle.score_many(ITEM, (), responses)
        best = min(best, time.process_time() - start)
    assert best / 2000 < 10e-6


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"workers": -1}, "oracle workers: expected an integer ≥ 0, actually -1"),
        ({"workers": True}, "actually True"),
        ({"timeout": 0}, "oracle timeout: .* above 0, actually 0"),
        ({"timeout": math.nan}, "actually nan"),
        ({"timeout": "5"}, "actually '5'"),
        ({"timeout": True}, "oracle timeout: .* actually True"),
        ({"memory": True}, "oracle memory: .* actually True"),
        ({"memory": 0}, "oracle memory: .* actually 0"),
        ({"cache_size": 1.5}, "oracle cache_size: .* actually 1.5"),
    ],
)
def test_illegal_options(options, text):
    with pytest.raises(ConfigError, match=text):
        Oracle(Scorer(), **options)


def test_judge_reward():
    asked = []

    def ask(prompt):
        asked.append(prompt)
        if "late" in prompt:
            raise TimeoutError("too late")
        return prompt.rpartition("=")[2]

    item = Item("k", {"topic": "{rain}"})
    score = judge_reward(ask, "On {topic}:\n{responses}\n={a_0}", float)
    assert score(item, (), {"a_0": "2.5", "b_1": "{x}"}) == Score(reward=2.5, parts={"judge": 2.5})
    assert asked == ["On {rain}:\na_0:\n2.5\n\nb_1:\n{x}\n=2.5"]
    assert score(item, (), {"a_0": "late", "b_1": ""}).status == "timeout"
    assert score(item, (), {"a_0": "good", "b_1": ""}).reason.startswith("ValueError")
    assert "no finite number: 'nan'" in score(item, (), {"a_0": "nan", "b_1": ""}).reason
    with pytest.raises(TaskError, match=r"fields among \['a_0', 'responses', 'topic'\], actually 'b_1'"):
        judge_reward(ask, "{b_1}", float)(item, (), {"a_0": "x"})
