import pickle

import pytest

from comlrl_env import Item, TaskError
from comlrl_env.items import ProceduralItems, find_item, item_rng, position_of, split_sizes


def build(rng, split):
    return {"n": int(rng.integers(1 << 62)), "split": split}


def test_streams_are_different_for_every_part_of_the_name():
    seen = {
        int(item_rng(seed, split, index, level).integers(1 << 62))
        for seed in range(5)
        for split in ("train", "eval")
        for index in range(5)
        for level in range(3)
    }
    assert len(seen) == 5 * 2 * 5 * 3
    # The trap of seed + index: neighbouring seeds would share all items but one.
    one = {item_rng(0, "train", index, 0).integers(1 << 62) for index in range(100)}
    two = {item_rng(1, "train", index, 0).integers(1 << 62) for index in range(100)}
    assert not one & two


def test_is_a_lazy_sequence():
    built = []
    items = ProceduralItems(lambda rng, split: built.append(split) or {}, "train", size=10**9, seed=0)
    assert len(items) == 10**9
    assert not built
    assert items[10**9 - 1].key == "train/0/0/999999999"
    assert items[-1] == items[10**9 - 1]
    assert [item.key for item in items[2:8:3]] == ["train/0/0/2", "train/0/0/5"]
    with pytest.raises(IndexError):
        items[10**9]
    with pytest.raises(IndexError):
        items[-(10**9) - 1]
    small = ProceduralItems(build, "eval", size=3, seed=0)
    assert [item.key for item in small] == ["eval/0/0/0", "eval/0/0/1", "eval/0/0/2"]
    assert [item.data["split"] for item in small] == ["eval"] * 3
    assert pickle.loads(pickle.dumps(small))[1] == small[1]


def test_an_item_does_not_depend_on_what_was_read_before():
    items = ProceduralItems(build, "train", size=9, seed=4, level=1)
    assert [items[i] for i in reversed(range(9))][::-1] == list(items)


def test_positions_of_keys():
    items = ProceduralItems(build, "train", size=100, seed=2, level=1)
    assert all(position_of(items, items[i].key) == i for i in (0, 7, 99))
    for key in ("train/1/2/100", "eval/1/2/7", "train/1/3/7", "train/1/2/07", "train/1/2/-1", "train/1/2/²", "", "7"):
        assert position_of(items, key) is None
    plain = [Item(key="a", data={}), Item(key="b", data={})]
    assert [position_of(plain, key) for key in ("a", "b", "c")] == [0, 1, None]


def test_find_item():
    items = ProceduralItems(build, "train", size=5, seed=0)
    assert find_item(items, 3) == find_item(items, "train/0/0/3") == 3
    with pytest.raises(TaskError, match=r"item: expected an integer in \[0, 4\], actually 5"):
        find_item(items, 5)
    with pytest.raises(TaskError, match=r"expected a key such as 'train/0/0/0', actually 'x', which no item has"):
        find_item(items, "x")
    with pytest.raises(TaskError, match=r"actually 1.0 \(float\)"):
        find_item(items, 1.0)


def test_sizes():
    assert split_sizes(7) == {"train": 7, "eval": 7}
    assert split_sizes({"train": 5, "eval": 2}) == {"train": 5, "eval": 2}
    with pytest.raises(TaskError, match=r"num_items\['eval'\]: expected an integer ≥ 1, actually 0"):
        split_sizes({"train": 5, "eval": 0})
