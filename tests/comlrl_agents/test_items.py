import numpy as np
import pytest

from comlrl_agents.items import ItemSchedule, Reset, first_items
from comlrl_env.errors import ConfigError


class Finite:
    num_items = 5


class Endless:
    pass


def indices(resets):
    return [reset.options["item"] for reset in resets]


def test_all_items_in_order_without_a_limit():
    schedule = ItemSchedule(Finite(), None)
    assert indices(schedule.draw(np.random.default_rng(0))) == [0, 1, 2, 3, 4]


def test_passes_use_every_item_equally_and_never_twice_in_a_round():
    schedule, rng = ItemSchedule(Finite(), 3), np.random.default_rng(0)
    rounds = [indices(schedule.draw(rng)) for _ in range(50)]
    assert all(len(set(drawn)) == 3 for drawn in rounds)
    assert np.bincount(np.concatenate(rounds)).tolist() == [30] * 5


def test_state_continues_the_pass():
    one, rng = ItemSchedule(Finite(), 2), np.random.default_rng(3)
    one.draw(rng)
    state, bits = one.state_dict(), rng.bit_generator.state
    expected = [indices(one.draw(rng)) for _ in range(4)]
    other, other_rng = ItemSchedule(Finite(), 2), np.random.default_rng()
    other.load_state_dict(state)
    other_rng.bit_generator.state = bits
    assert [indices(other.draw(other_rng)) for _ in range(4)] == expected


def test_an_endless_source_is_reset_by_seed_and_needs_a_number():
    resets = ItemSchedule(Endless(), 4).draw(np.random.default_rng(0))
    assert len({reset.seed for reset in resets}) == 4
    assert all(reset.options is None for reset in resets)
    with pytest.raises(ConfigError, match="items_per_round: Endless does not tell num_items"):
        ItemSchedule(Endless(), None)


def test_more_items_than_there_are_is_refused():
    with pytest.raises(ConfigError, match="must not exceed the environment's 5 items, actually 6"):
        ItemSchedule(Finite(), 6)


def test_first_items_are_the_same_each_time():
    assert indices(first_items(Finite(), 9)) == [0, 1, 2, 3, 4]
    assert first_items(Endless(), 2) == [Reset(0), Reset(1)]
