import numpy as np
import pytest

from comlrl_agents.replay import ReplayBuffer, ReplayRule, draw_within, round_weights
from comlrl_env.types import Completion, JointTurn, PreferencePair


def pair(name: str) -> PreferencePair:
    def side(text: str) -> tuple[JointTurn, ...]:
        return (JointTurn(("p",), (Completion(text),)),)

    return PreferencePair(
        winner=side(f"{name} w"),
        loser=side(f"{name} l"),
        winner_reward=1.0,
        loser_reward=0.0,
        candidate_reward_mean=0.5,
    )


def filled(folder, rule, sizes):
    buffer = ReplayBuffer(folder, rule)
    for iteration, size in enumerate(sizes, start=1):
        buffer.add(iteration, [pair(f"r{iteration}p{i}") for i in range(size)])
    return buffer


def shares(sample) -> dict[int, int]:
    iterations, counts = np.unique([i for i, _ in sample.places], return_counts=True)
    return dict(zip(iterations.tolist(), counts.tolist(), strict=True))


def test_decay_weights_of_the_specification():
    rule = ReplayRule("lambda_decay", decay=0.5)
    assert round_weights(rule, 3) == pytest.approx([4 / 7, 2 / 7, 1 / 7])
    assert round_weights(ReplayRule("lambda_decay", decay=0.0), 3) == pytest.approx([1, 0, 0])
    assert round_weights(ReplayRule("lambda_decay", decay=1.0), 4) == pytest.approx([0.25] * 4)


@pytest.mark.parametrize("decay", [0.0, 0.3, 0.99, 1.0])
@pytest.mark.parametrize("rounds", [1, 2, 7, 50])
def test_weights_sum_to_one(decay, rounds):
    assert round_weights(ReplayRule("lambda_decay", decay=decay), rounds).sum() == pytest.approx(1.0)


def test_equal_weights_whatever_the_sizes():
    assert round_weights(ReplayRule("all_history"), 3) == pytest.approx([1 / 3] * 3)
    assert round_weights(ReplayRule("nearest_k", k=2), 5) == pytest.approx([0.5, 0.5])
    assert round_weights(ReplayRule("nearest_k", k=9), 2) == pytest.approx([0.5, 0.5])


def test_inside_a_round_nothing_repeats_before_it_must():
    rng = np.random.default_rng(0)
    for size in range(1, 6):
        for count in range(1, 14):
            counts = np.bincount(draw_within(size, count, rng), minlength=size)
            assert counts.sum() == count
            assert counts.max() - counts.min() <= 1


def test_current_takes_all_pairs_of_the_round_and_no_others(tmp_path):
    buffer = filled(tmp_path, ReplayRule(), [3, 2])
    sample = buffer.draw(2, np.random.default_rng(0))
    assert sample.places == [(2, 0), (2, 1)]
    assert [p.winner[0].texts for p in sample] == [("r2p0 w",), ("r2p1 w",)]
    assert len(buffer.draw(3, np.random.default_rng(0))) == 0


def test_the_round_itself_is_eligible_and_empty_rounds_do_not_count(tmp_path):
    buffer = filled(tmp_path, ReplayRule("nearest_k", k=2, sample_size=400), [4, 4, 0, 4])
    assert set(shares(buffer.draw(4, np.random.default_rng(0)))) == {2, 4}
    assert (tmp_path / "iteration_0003.json").is_file()


def test_default_size_is_the_current_round_or_the_newest_non_empty_one(tmp_path):
    rule = ReplayRule("all_history")
    assert len(filled(tmp_path / "a", rule, [5, 3]).draw(2, np.random.default_rng(0))) == 3
    assert len(filled(tmp_path / "b", rule, [5, 3, 0]).draw(3, np.random.default_rng(0))) == 3
    assert len(filled(tmp_path / "c", rule, [0]).draw(1, np.random.default_rng(0))) == 0


def test_draw_counts_follow_the_weights(tmp_path):
    draws = 100_000
    buffer = filled(tmp_path, ReplayRule("lambda_decay", decay=0.5, sample_size=draws), [5, 50, 2])
    counts = shares(buffer.draw(3, np.random.default_rng(1)))
    for iteration, p in ((3, 4 / 7), (2, 2 / 7), (1, 1 / 7)):
        assert abs(counts[iteration] - draws * p) < 5 * (draws * p * (1 - p)) ** 0.5


def test_the_combined_sample_is_shuffled(tmp_path):
    buffer = filled(tmp_path, ReplayRule("all_history", sample_size=200), [10, 10])
    rounds = [i for i, _ in buffer.draw(2, np.random.default_rng(0)).places]
    assert rounds != sorted(rounds)
    assert rounds != sorted(rounds, reverse=True)


def test_an_old_folder_imports_nothing_but_a_checkpoint_restores(tmp_path):
    old = filled(tmp_path, ReplayRule("all_history"), [4, 0, 2])
    fresh = ReplayBuffer(tmp_path, ReplayRule("all_history"))
    assert len(fresh.draw(1, np.random.default_rng(0))) == 0
    fresh.load_state_dict(old.state_dict())
    assert fresh.iterations == [1, 3]
    assert list(fresh.draw(3, np.random.default_rng(5))) == list(old.draw(3, np.random.default_rng(5)))


def test_round_shares_are_of_the_sample(tmp_path):
    sample = filled(tmp_path, ReplayRule(), [3]).draw(1, np.random.default_rng(0))
    assert sample.round_shares() == {"replay/round_1": 1.0}
