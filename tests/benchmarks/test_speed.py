"""The measuring itself: equal inputs on both sides, honest arithmetic, workers that say why they died."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.speed import selection, update
from benchmarks.speed.bench import in_words, report
from benchmarks.speed.job import Job, batches, items, pairs, reward
from benchmarks.speed.models import MODELS, build_network, build_tokenizer, text
from benchmarks.speed.peer_environment import peer_python
from benchmarks.speed.turns import Record, Side, SideFailedError, alternate

S = MODELS["S"]


def job(**shapes: int) -> Job:
    return Job("update", "S", "nowhere", seed=3, shapes={"pairs": 2, "updates": 3, "items": 4} | shapes)


def record(seconds: list[float], mib: float) -> Record:
    versions = {"torch": "2", "comlrl": "1.4.3"}
    return Record(
        versions,
        load_mib=mib / 2,
        work_mib=mib,
        seconds=seconds,
        cpu_seconds=list(seconds),
        phases=[{} for _ in seconds],
    )


def test_prompts_and_completions_survive_text():
    tokenizer, edges = build_tokenizer(S, eos="<end>"), [0, 1, 150, 298, 299]
    assert tokenizer.encode(text(edges)) == edges
    assert tokenizer.decode(edges, skip_special_tokens=True) == text(edges)
    assert tokenizer.eos_token_id == 300  # outside: no model can draw it
    assert build_tokenizer(S, eos=text([299])).eos_token_id == 299


def test_every_token_of_the_large_model_is_a_character_of_its_own():
    characters = text(list(range(MODELS["G"].vocabulary)))
    assert len(set(characters)) == len(characters) == 262_144
    assert characters.encode().decode() == characters  # no half of a surrogate pair


def test_the_counted_parameters_are_those_of_the_network():
    assert sum(p.numel() for p in build_network(S).parameters()) == S.body + S.head


def test_useful_work_by_hand():
    tokens = 33 + 28
    assert S.update_flop(16) == 6 * 16 * (tokens * S.body + 28 * S.head)
    assert S.sampling_flop(2, 5) == 2 * ((2 * 33 + 2 * 5 * 28) * S.body + 2 * 5 * 28 * S.head)


def test_both_sides_draw_the_same_inputs_and_no_sequence_twice(tmp_path):
    here = job()
    there = Job.read(str(here.write(tmp_path / "job.json")))
    assert pairs(here) == pairs(there)
    assert items(here) == items(there)
    rows = pairs(here)
    sequences = [tuple(ids) for pair in rows for own in pair for ids in (own.winner, own.loser)]
    assert len(set(sequences)) == len(sequences) == 6 * 2 * 2
    assert {len(ids) for ids in sequences} == {28}
    assert [len(batch) for batch in batches(here, rows)] == [2, 2, 2]


def test_closed_completions_end_with_the_last_token_and_hold_it_nowhere_else():
    for (own,) in pairs(job(), 1, closed=True):
        assert own.winner.index(S.vocabulary - 1) == own.loser.index(S.vocabulary - 1) == 27


def test_rewards_are_the_same_everywhere_and_hardly_tie():
    texts = [text([i]) for i in range(300)]
    rewards = reward(texts, texts)
    assert rewards == reward(texts, texts)
    assert len(set(rewards)) == 300
    assert all(0 <= value < 1 for value in rewards)


def test_ratio_is_the_median_of_the_turns_and_share_is_of_the_higher_roof():
    ours, peer = record([1.0, 2.0, 1.0], 300), record([4.0, 4.0, 2.0], 400)
    line = report(update.BENCH, job(), ours, peer, [{"highest": 2.0, "medium": 4.0}])
    assert line["ratio"] == 2.0  # of 4, 2 and 2; the ratio of the medians would be 4
    assert line["ratio_range"] == [2.0, 4.0]
    assert line["met"] is False
    assert line["memory_ratio"] == 0.75
    assert line["ours"]["rate"] == 6.0
    assert line["share_of_roof"] == pytest.approx(update.BENCH.flop(job()) / 1e9 / 1.0 / 4.0, rel=1e-3)
    assert {"bench", "model", "ratio", "target", "share_of_roof", "peak_memory_mib"} <= json.loads(
        json.dumps(line)
    ).keys()
    assert in_words(line).startswith("update S: 6 pairs/s, comlrl 1.4.3 1.5, ratio 2.00 [2.00, 4.00]")


def test_a_worker_takes_its_turns(tmp_path):
    case = "reward_gap, two sides"
    stored = Job("selection", "", "", 0, {"candidates": 100, "limit": 4}, case).write(tmp_path / "job.json")
    found, order = Record(), []
    sides = [Side(sys.executable, selection.BENCH.module, stored, found)]
    alternate(
        sides,
        2,
        resident=True,
        agree=lambda: order.append(found.versions["python"]),
        between=lambda: order.append(str(len(found.seconds))),
    )
    ready = sys.version.split()[0]
    assert order == [ready, "0", ready, "1", ready]
    assert len(found.seconds) == len(found.cpu_seconds) == 2
    assert found.work_mib > 20


def test_a_worker_that_dies_says_why(tmp_path):
    stored = job().write(tmp_path / "job.json")
    side = Side(sys.executable, "benchmarks.speed.nothing_of_that_name", stored, Record())
    with pytest.raises(SideFailedError, match=r"(?s)ended with status 1 before it answered.*nothing_of_that_name"):
        side.__enter__()


def test_a_folder_without_python_is_refused():
    with pytest.raises(FileNotFoundError, match=r"--peers /nowhere: has no Python at"):
        peer_python(Path("/nowhere"))
