"""Round files: lossless, atomic, read by offset, and clear about what is wrong with a file."""

import json
import math
import os
import random
import tracemalloc

import pytest

from comlrl_env.errors import ConfigError, RecordError
from comlrl_env.records import (
    RoundFile,
    decode_pair,
    encode_pair,
    export,
    read_round,
    write_round,
)
from comlrl_env.types import Completion, JointTurn, PreferencePair

AGENTS = ("helper_0", "author_1")


def turn(texts, *, prompts=("p0", "p1"), ids=None, finished=None, prompt_ids=None):
    completions = tuple(
        Completion(
            text=text, token_ids=None if ids is None else ids[k], finished=None if finished is None else finished[k]
        )
        for k, text in enumerate(texts)
    )
    return JointTurn(prompts=prompts, completions=completions, prompt_ids=prompt_ids)


def pair(winner=("a", "b"), loser=("c", "d"), **fields):
    values = {"winner_reward": 0.92, "loser_reward": 0.41, "candidate_reward_mean": 0.63, **fields}
    return PreferencePair(winner=(turn(winner),), loser=(turn(loser),), **values)


def full_pair():
    prompt_ids = ((1, 2), (3,))
    return PreferencePair(
        winner=(
            turn(("é", ""), ids=((5, 6, 2), ()), finished=(True, False), prompt_ids=prompt_ids),
            turn(
                ("w", "x"), prompts=("after", "é"), ids=((9,), None), finished=(None, True), prompt_ids=((4,), (4, 4))
            ),
        ),
        loser=(turn(('\u2028\n"\\', "😀"), ids=(None, (7,)), finished=(None, True), prompt_ids=prompt_ids),),
        winner_reward=0.1 + 0.2,
        loser_reward=-1e-300,
        candidate_reward_mean=1 / 3,
        raw_rewards=(2.5, -2.0),
        target_raw_reward=-2.0,
        comparator_raw_reward=2.5,
        item_key="train/日本語",
        agents=AGENTS,
    )


def reference_record(**fields):
    """A pair as the reference library stores it: these fields and no others."""
    return {
        "prompts": ["Write é", "Continue 日本"],
        "winner_completions": ["un été", "deux"],
        "loser_completions": ["x", "y\n"],
        "winner_reward": 1,
        "loser_reward": 0.25,
        "candidate_reward_mean": 0.5,
        **fields,
    }


def write_json(path, content, **options):
    path.write_text(json.dumps(content, **options), encoding="utf-8")
    return path


def test_record_has_the_specified_fields_and_leaves_out_what_is_unknown():
    assert encode_pair(pair()) == {
        "prompts": ["p0", "p1"],
        "winner_completions": ["a", "b"],
        "loser_completions": ["c", "d"],
        "winner_reward": 0.92,
        "loser_reward": 0.41,
        "candidate_reward_mean": 0.63,
    }
    iterative = pair(raw_rewards=(0.92, 0.41), target_raw_reward=0.92, comparator_raw_reward=0.41)
    assert list(encode_pair(iterative))[6:] == ["raw_rewards", "target_raw_reward", "comparator_raw_reward"]
    assert decode_pair(encode_pair(iterative)) == iterative


def test_everything_survives_the_way_through_a_file(tmp_path):
    pairs = [full_pair(), pair(), pair(("", ""), ("\x00", "\t"))]
    path = write_round(tmp_path / "new" / "pairs", 12, pairs)
    assert path == tmp_path / "new" / "pairs" / "iteration_0012.json"
    assert read_round(path).pairs == pairs
    assert read_round(path).iteration == 12
    assert decode_pair(json.loads(json.dumps(encode_pair(full_pair())))) == full_pair()
    content = json.loads(path.read_text(encoding="utf-8"))  # any JSON reader
    assert content["iteration"] == 12
    assert content["num_pairs"] == 3
    assert content["pairs"] == [encode_pair(entry) for entry in pairs]
    assert content["pairs"][0]["later_turns"][0]["winner"]["prompts"] == ["after", "é"]
    assert "日本語" in path.read_text(encoding="utf-8")


def test_an_empty_round_is_written_too(tmp_path):
    path = write_round(tmp_path, 1, [])
    assert json.loads(path.read_bytes()) == {"iteration": 1, "num_pairs": 0, "pairs": []}
    assert len(RoundFile(path)) == 0
    assert read_round(path).pairs == []


def test_prompt_ids_known_on_one_side_hold_for_both(tmp_path):
    known = turn(("a", "b"), prompt_ids=((1,), (2,)))
    mixed = PreferencePair(
        winner=(turn(("c", "d")),), loser=(known,), winner_reward=1, loser_reward=0, candidate_reward_mean=0.5
    )
    again = decode_pair(encode_pair(mixed))
    assert again.winner[0].prompt_ids == again.loser[0].prompt_ids == ((1,), (2,))


def test_lone_surrogates_survive(tmp_path):
    broken = pair(("a\ud800é", "\udfff"), ("\\\udc00", "\ud83d"), item_key="\udcff")
    other = pair()
    path = write_round(tmp_path, 1, [broken, other])
    assert list(RoundFile(path)) == [broken, other]
    assert "é" in path.read_text(encoding="utf-8")  # the file is valid UTF-8 all the same
    joined = pair(("\ud83d\ude00", ""), ("", "x"))  # two that form a character: JSON has one spelling for both
    assert read_round(write_round(tmp_path, 2, [joined])).pairs[0].winner[0].texts[0] == "😀"


def test_random_access_and_sequence_manners(tmp_path):
    pairs = [pair((str(k), "é" * k), ("x", "y"), candidate_reward_mean=float(k)) for k in range(50)]
    file = RoundFile(write_round(tmp_path, 1, pairs))
    order = list(range(50))
    random.Random(0).shuffle(order)
    assert [file[k] for k in order] == [pairs[k] for k in order]
    assert file[-1] == pairs[-1]
    assert file[3:9:2] == pairs[3:9:2]
    assert list(file) == pairs
    assert pairs[7] in file
    with pytest.raises(IndexError):
        file[50]


def test_reading_takes_constant_memory(tmp_path):
    count = 20_000
    path = write_round(tmp_path, 1, [pair(("long " * 40, str(k)), ("c", "d")) for k in range(count)])
    tracemalloc.start()
    file = RoundFile(path)
    seen = sum(len(file[k].winner[0].texts[1]) for k in range(0, count, 97))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seen > 0
    assert path.stat().st_size > 6_000_000
    assert peak < 1_000_000  # eight bytes a pair, and one pair at a time


@pytest.mark.parametrize("options", [{}, {"indent": 2, "ensure_ascii": False}, {"indent": 4}])
@pytest.mark.parametrize("iterative", [False, True])
def test_a_file_of_the_reference_loads(tmp_path, options, iterative):
    more = {"raw_rewards": [1, 0.25], "target_raw_reward": 1, "comparator_raw_reward": 0.25} if iterative else {}
    content = {"iteration": 3, "num_pairs": 2, "pairs": [reference_record(**more)] * 2}
    file = RoundFile(write_json(tmp_path / "any_name.json", content, **options))
    assert file.iteration == 3
    assert len(file) == 2
    stored = file[1]
    assert stored.winner[0].texts == ("un été", "deux")
    assert stored.loser[0].completions[1] == Completion("y\n")
    assert stored.winner[0].prompts == stored.loser[0].prompts == ("Write é", "Continue 日本")
    assert (stored.winner_reward, stored.raw_rewards) == (1.0, (1.0, 0.25) if iterative else None)
    assert encode_pair(stored) == reference_record(**more)


def test_unknown_fields_and_other_layouts_load(tmp_path):
    content = {"pairs": [reference_record(note=1)], "num_pairs": 1, "iteration": 1, "by": "me"}
    assert len(read_round(write_json(tmp_path / "x.json", content)).pairs) == 1
    own = write_round(tmp_path, 1, [pair(), full_pair()])
    own.write_bytes(own.read_bytes().replace(b"\n", b"\r\n"))
    assert list(RoundFile(own)) == [pair(), full_pair()]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"winner_completions": ["one"]},
            r"pairs\[1\]: winner_completions: expected one entry per agent \(2\), actually 1",
        ),
        ({"prompts": []}, r"pairs\[1\]: prompts: expected one text per agent, actually none"),
        ({"prompts": "text"}, r"pairs\[1\]: Expected `array`, got `str` - at `\$.prompts`"),
        ({"loser_completions": ["a", None]}, r"Expected `str`, got `null` - at `\$.loser_completions"),
        ({"winner_reward": None}, r"Expected `float`, got `null` - at `\$.winner_reward`"),
        ({"winner_reward": "1"}, r"Expected `float`, got `str` - at `\$.winner_reward`"),
        ({"loser_reward": math.nan}, "expected finite numbers, actually NaN, which is not JSON"),
        ({"candidate_reward_mean": math.inf}, "expected finite numbers, actually Infinity"),
        ({"loser_reward": 1.0}, "expected winner_reward above loser_reward, actually 1.0 and 1.0"),
        ({"winner_reward": 0.0}, "actually 0.0 and 0.25: ties are no pairs"),
        ({"raw_rewards": [1.0]}, r"length >= 2 - at `\$.raw_rewards`"),
        ({"winner_token_ids": [[1]]}, r"winner_token_ids: expected one entry per agent \(2\), actually 1"),
        ({"winner_token_ids": [[1], [-1]]}, r"Expected `int` >= 0 - at `\$.winner_token_ids"),
        ({"agents": ["a", "b", "c"]}, r"agents: expected one entry per agent \(2\), actually 3"),
        (
            {"later_turns": [{"winner": {"prompts": ["a", "b"], "completions": ["c"]}}]},
            r"later_turns\[0\].winner: completions: expected one entry per agent",
        ),
        (
            {"later_turns": [{}, {"loser": {"prompts": ["a", "b"], "completions": ["c", "d"]}}]},
            r"later_turns\[1\].loser: a side that has ended cannot go on",
        ),
    ],
)
def test_malformed_pairs_are_named(tmp_path, fields, text):
    content = {"iteration": 1, "num_pairs": 2, "pairs": [reference_record(), reference_record(**fields)]}
    path = write_json(tmp_path / "iteration_0001.json", content)
    with pytest.raises(RecordError, match=text) as caught:
        read_round(path)
    assert str(path) in str(caught.value)
    lines = ",\n".join(json.dumps(entry) for entry in content["pairs"])  # the same in our own layout
    path.write_text(f'{{"iteration": 1, "num_pairs": 2, "pairs": [\n{lines}\n]}}\n', encoding="utf-8")
    file = RoundFile(path)
    assert file[0] == decode_pair(reference_record())
    with pytest.raises(RecordError, match=text):
        file[1]


def test_missing_field_is_named(tmp_path):
    record = reference_record()
    del record["loser_completions"]
    path = write_json(tmp_path / "x.json", {"iteration": 1, "num_pairs": 1, "pairs": [record]})
    with pytest.raises(RecordError, match="missing required field `loser_completions`"):
        read_round(path)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "expected JSON in UTF-8"),
        (b"[]", "actually iteration None and pairs of type NoneType"),
        (b'{"iteration": 1}', "pairs of type NoneType"),
        (b'{"iteration": "1", "pairs": []}', "actually iteration '1'"),
        (b'{"iteration": 1, "num_pairs": 3, "pairs": []}', "num_pairs: expected 3 pairs, actually 0"),
        (b'{"iteration": 1, "num_pairs": 2, "pairs": [\n{}\n]}\n', "num_pairs: expected 2 pairs, actually 1"),
        (b'{"iteration": 1, "num_pairs": 1, "pairs": [\n{"prom', "expected JSON in UTF-8"),
        (b'{"iteration": 1, "num_pairs": 0, "pairs": ["\xff"]}', "expected JSON in UTF-8"),
    ],
)
def test_malformed_files_are_named(tmp_path, content, text):
    path = tmp_path / "iteration_0001.json"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=text) as caught:
        RoundFile(path)
    assert str(path) in str(caught.value)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(RecordError, match="expected a readable file of pairs"):
        RoundFile(tmp_path / "nowhere.json")


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (pair(winner_reward=math.nan), "winner_reward: expected a finite number, actually nan"),
        (pair(candidate_reward_mean=math.nan), "candidate_reward_mean: expected a finite number, actually nan"),
        (pair(raw_rewards=(1.0, math.inf)), "raw_rewards: expected a finite number, actually inf"),
        (pair(winner_reward=0.1), "expected winner_reward above loser_reward"),
        (pair(("only",)), "winner_completions: expected one entry per agent"),
        (
            PreferencePair(winner=(), loser=(), winner_reward=1, loser_reward=0, candidate_reward_mean=0),
            "at least one turn",
        ),
        (
            PreferencePair(
                winner=(turn(("a", "b")),),
                loser=(turn(("a", "b"), prompts=("other", "p1")),),
                winner_reward=1,
                loser_reward=0,
                candidate_reward_mean=0,
            ),
            "the same prompts in turn 1",
        ),
        (
            PreferencePair(
                winner=(turn(("a", "b"), prompt_ids=((1,), (2,))),),
                loser=(turn(("c", "d"), prompt_ids=((1,), (3,))),),
                winner_reward=1,
                loser_reward=0,
                candidate_reward_mean=0,
            ),
            "written by another tokenizer must not carry token ids",
        ),
    ],
)
def test_what_no_file_may_hold_is_refused_and_leaves_the_old_file(tmp_path, bad, text):
    path = write_round(tmp_path, 1, [pair()])
    with pytest.raises(RecordError, match=text) as caught:
        write_round(tmp_path, 1, [pair(), bad])
    assert "pairs[1]" in str(caught.value)
    assert read_round(path).pairs == [pair()]
    assert [entry.name for entry in tmp_path.iterdir()] == ["iteration_0001.json"]


@pytest.mark.parametrize("iteration", [0, -1, 1.0, True])
def test_rounds_count_from_one(tmp_path, iteration):
    with pytest.raises(RecordError, match="expected an integer ≥ 1"):
        write_round(tmp_path, iteration, [])


def test_a_crash_before_the_rename_leaves_the_old_file(tmp_path, monkeypatch):
    path = write_round(tmp_path, 1, [pair()])

    def crash(handle):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(OSError, match="disk full"):
        write_round(tmp_path, 1, [])
    assert read_round(path).pairs == [pair()]
    assert [entry.name for entry in tmp_path.iterdir()] == ["iteration_0001.json"]


def test_a_reader_keeps_the_file_that_it_opened(tmp_path):
    path = write_round(tmp_path, 1, [pair()])
    with path.open("rb") as reader:
        write_round(tmp_path, 1, [pair(), pair()])
        assert json.loads(reader.read())["num_pairs"] == 1
    assert len(RoundFile(path)) == 2


def test_exports():
    named = pair(agents=AGENTS, item_key="k")
    assert list(export([named, pair()], "agents")) == [
        {"agent": "helper_0", "prompt": "p0", "chosen": "a", "rejected": "c", "item_key": "k"},
        {"agent": "author_1", "prompt": "p1", "chosen": "b", "rejected": "d", "item_key": "k"},
        {"agent": "agent_0", "prompt": "p0", "chosen": "a", "rejected": "c", "item_key": None},
        {"agent": "agent_1", "prompt": "p1", "chosen": "b", "rejected": "d", "item_key": None},
    ]
    assert list(export([named], "joint")) == [
        {
            "prompt": "Prompt of helper_0:\np0\n\nPrompt of author_1:\np1",
            "chosen": "<agent_0>\na\n</agent_0>\n<agent_1>\nb\n</agent_1>",
            "rejected": "<agent_0>\nc\n</agent_0>\n<agent_1>\nd\n</agent_1>",
            "item_key": "k",
        }
    ]
    with pytest.raises(ConfigError, match="kind 'agents' or 'joint', actually 'rows'"):
        export([], "rows")
    with pytest.raises(RecordError, match="expected pairs of one turn, actually 2 and 1"):
        list(export([full_pair()], "joint"))
