import functools
import subprocess
import sys
from collections.abc import Iterator

import pettingzoo
import pytest

import comlrl_env
from comlrl_env import ConfigError, RegistryError, TaskError, TextEnv, registry
from comlrl_env.tasks.partition.partition import Partition

from .toys import Dice, Match


@pytest.fixture(autouse=True)
def _clean_registries() -> Iterator[None]:
    ours, theirs = dict(registry._entries), dict(pettingzoo.parallel_registry)
    yield
    for live, saved in ((registry._entries, ours), (pettingzoo.parallel_registry, theirs)):
        live.clear()
        live.update(saved)
    registry._read_entry_points.cache_clear()


def test_the_three_tasks_are_listed():
    built_in = {"comlrl/HumanEval-v0", "comlrl/LengthRatio-v0", "comlrl/Partition-v0"}
    assert built_in <= set(comlrl_env.list_envs())
    assert comlrl_env.list_envs() == sorted(comlrl_env.list_envs())


def test_make_divides_the_arguments():
    env = comlrl_env.make(
        "comlrl/Partition-v0",
        split="eval",
        render_mode="ansi",
        reward_processor=lambda r: 10 * r,
        oracle_timeout=5.0,
        max_cycles=2,
        num_things=4,
        num_items=3,
    )
    assert isinstance(env, TextEnv)
    assert (env.split, env.num_items, env.max_cycles, env.task.num_things) == ("eval", 3, 2, 4)
    env.reset(seed=0)
    _, rewards, _, _, infos = env.step(env.task.gold(env.item))
    assert (rewards["helper_0"], infos["helper_0"]["raw_reward"]) == (10, 1)
    assert env.render().startswith("comlrl/Partition-v0 · eval · item eval/0/0/")
    env.close()


def test_names_without_version_and_through_pettingzoo():
    assert comlrl_env.make("comlrl/Partition").metadata["name"] == "comlrl/Partition-v0"
    env = pettingzoo.make("parallel", "comlrl/Partition-v0", num_agents=3, max_cycles=4)
    assert env.possible_agents == ["helper_0", "helper_1", "helper_2"]
    assert env.max_cycles == 4
    comlrl_env.register("test/Twice-v0", Match)
    comlrl_env.register("test/Twice-v3", Partition)
    assert isinstance(comlrl_env.make("test/Twice").task, Partition)


def test_module_and_class():
    env = comlrl_env.make("comlrl_env.tasks.partition.partition:Partition", level=1)
    assert env.task.level == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("comlrl/LengthRatoi-v0", "unknown environment 'comlrl/LengthRatoi-v0'; did you mean 'comlrl/LengthRatio-v0'?"),
        ("Partition-v0", "did you mean 'comlrl/Partition-v0'?"),
        ("COMLRL/partition-V0", "did you mean 'comlrl/Partition-v0'?"),
        ("comlrl/Partition-v9", "did you mean 'comlrl/Partition-v0'?"),
        ("zzz", "unknown environment 'zzz'; comlrl_env.list_envs() has comlrl/"),
        ("", "unknown environment ''"),
        ("a b c!", "unknown environment 'a b c!'"),
        (3, "environment id: expected a str such as 'comlrl/Partition-v0', actually 3"),
        ("no_such_module:Task", "cannot import 'no_such_module' (No module named 'no_such_module')"),
        ("comlrl_env.tasks.partition.partition:Partitoin", "did you mean 'Partition'?"),
        ("comlrl_env.tasks.partition.names:COMMON", "has no class or function 'COMMON'"),
    ],
)
def test_unknown_names(name, message):
    with pytest.raises(RegistryError) as caught:
        comlrl_env.make(name)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"leval": 1},
            "Partition-v0: unknown argument 'leval'; did you mean 'level'? the task takes num_things, ",
        ),
        ({"splt": "eval"}, "unknown argument 'splt'; did you mean 'split'?"),
        (
            {"xyzzy": 1},
            "unknown argument 'xyzzy'; the task takes num_things, level, seed, num_items, num_agents",
        ),
    ],
)
def test_unknown_arguments(arguments, message):
    with pytest.raises(ConfigError) as caught:
        comlrl_env.make("comlrl/Partition-v0", **arguments)
    assert message in str(caught.value)
    with pytest.raises(ConfigError):
        comlrl_env.load_task("comlrl/Partition-v0", **arguments)


def test_illegal_values_reach_the_task():
    with pytest.raises(TaskError, match="level: expected an integer"):
        comlrl_env.make("comlrl/Partition-v0", level="hard")
    with pytest.raises(TaskError, match="split: expected"):
        comlrl_env.make("comlrl/Partition-v0", split="dev")


def test_register_a_task_class_with_defaults():
    comlrl_env.register("test/Small-v0", Partition, num_things=4)
    assert "test/Small-v0" in comlrl_env.list_envs()
    assert comlrl_env.make("test/Small-v0").task.num_things == 4
    assert comlrl_env.make("test/Small-v0", num_things=8).task.num_things == 8


def test_register_functions_and_whole_environments():
    comlrl_env.register("test/Task-v0", lambda: Match())
    assert isinstance(comlrl_env.make("test/Task-v0", split="eval").task, Match)
    comlrl_env.register("test/Dice-v0", Dice)
    assert isinstance(comlrl_env.make("test/Dice-v0"), Dice)
    with pytest.raises(ConfigError, match=r"test/Dice-v0: makes its environment itself and does not take \['split'\]"):
        comlrl_env.make("test/Dice-v0", split="eval")

    def factory(split="train", *, size=3):
        rows = [{"q": f"{split} {n}"} for n in range(size)]
        return comlrl_env.from_functions(rows, lambda one, two: [0.0] * len(one), lambda row: row["q"])

    comlrl_env.register("test/Factory-v0", factory)
    env = comlrl_env.make("test/Factory-v0", split="eval", size=5)
    assert (env.num_items, env.reset(options={"item": 0})[0]["agent_0"]) == (5, "eval 0")


def test_an_argument_that_is_missing():
    def factory(size):
        return Partition(num_things=size)

    comlrl_env.register("test/Sized-v0", factory)
    with pytest.raises(ConfigError, match=r"test/Sized-v0: expected the argument 'size', actually only \[\] are given"):
        comlrl_env.make("test/Sized-v0")


def test_taken_and_malformed_names():
    comlrl_env.register("test/Mine-v0", Match)
    comlrl_env.register("test/Mine-v0", Match)
    with pytest.raises(RegistryError, match=r"test/Mine-v0: is taken by .*; choose another name or a"):
        comlrl_env.register("test/Mine-v0", Dice)
    with pytest.raises(RegistryError, match="is taken"):
        comlrl_env.register("comlrl/Partition-v0", Match)
    theirs = next(name for name in pettingzoo.parallel_registry if name not in registry._entries)
    with pytest.raises(RegistryError, match="is taken in PettingZoo's registry"):
        comlrl_env.register(theirs, Match)
    with pytest.raises(RegistryError, match="expected an id such as 'namespace/Name-v0'"):
        comlrl_env.register("not an id", Match)
    for entry_point in (3, "module.without.colon", "a:b:c"):
        with pytest.raises(RegistryError, match="expected a callable or 'module:attribute' as entry point"):
            comlrl_env.register("test/Other-v0", entry_point)


def test_a_class_defined_again_in_a_notebook_replaces_the_first():
    def cell():
        class Again(Match):
            pass

        return Again

    first, second = cell(), cell()
    comlrl_env.register("test/Cell-v0", first)
    comlrl_env.register("test/Cell-v0", second)
    assert type(comlrl_env.make("test/Cell-v0").task) is second


def test_environments_of_pettingzoo_itself():
    theirs = "test/Foreign-v1"
    pettingzoo.register("parallel", theirs, Dice)
    assert isinstance(comlrl_env.make(theirs), Dice)
    assert isinstance(comlrl_env.make("test/Foreign"), Dice)
    assert theirs not in comlrl_env.list_envs()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed distribution with entry points, without installing one."""

    def install(**entries):
        (tmp_path / "acme_tasks.py").write_text(
            "from comlrl_env.tasks.partition.partition import Partition\nclass Shares(Partition):\n    '''Shares.'''\n"
        )
        info = tmp_path / "acme-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
        lines = [f"{name} = {place}" for name, place in entries.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{registry.GROUP}]", *lines]))
        monkeypatch.syspath_prepend(tmp_path)
        registry._read_entry_points.cache_clear()
        monkeypatch.delitem(sys.modules, "acme_tasks", raising=False)

    return install


def test_entry_points_of_other_packages(package):
    package(**{"acme/Shares-v2": "acme_tasks:Shares"})
    assert "acme/Shares-v2" in comlrl_env.list_envs()
    assert "acme_tasks" not in sys.modules  # listing imports nothing
    env = comlrl_env.make("acme/Shares", num_things=8)
    assert (type(env.task).__name__, env.task.num_things) == ("Shares", 8)
    assert comlrl_env.describe("acme/Shares-v2").agents == ("helper_0", "helper_1")


def test_a_broken_entry_point_leaves_the_others_alone(package):
    package(**{"comlrl/Partition-v0": "acme_tasks:Shares", "acme/Shares-v0": "acme_tasks:Missing"})
    with pytest.warns(RuntimeWarning, match="entry point of acme left out: comlrl/Partition-v0: is taken"):
        names = comlrl_env.list_envs()
    assert "acme/Shares-v0" in names
    with pytest.raises(RegistryError, match="'acme_tasks' has no class or function 'Missing'"):
        comlrl_env.make("acme/Shares-v0")
    assert type(comlrl_env.make("comlrl/Partition-v0").task) is Partition


def test_cards_are_read_without_making_items(monkeypatch):
    monkeypatch.setattr(Partition, "items", lambda self, split: pytest.fail("items were made"))
    card = comlrl_env.describe("comlrl/Partition")
    assert (card.id, card.num_turns, card.agents) == ("comlrl/Partition-v0", 1, ("helper_0", "helper_1"))
    assert card.figures == {"gold": 1.0, "solo": 0.0, "random": 0.2}
    assert card.summary == "divide M things among n agents without talking."
    comlrl_env.register("test/Dice-v0", Dice)
    assert comlrl_env.describe("test/Dice-v0").agents == ("left_0", "right_0")


def test_suggestions():
    assert registry.suggest("leval", ["level", "seed"]) == "; did you mean 'level'?"
    assert registry.suggest("qqq", ["level", "seed"]) == ""


def test_partial_functions_are_entry_points():
    comlrl_env.register("test/Partial-v0", functools.partial(Partition, num_things=8))
    assert comlrl_env.make("test/Partial-v0").task.num_things == 8


def test_listing_imports_no_task():
    code = (
        "import comlrl_env, sys; comlrl_env.list_envs();"
        "print([m for m in sys.modules if m.startswith('comlrl_env.tasks.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


class Splitting(Dice):
    def __init__(self, split="train"):
        super().__init__()
        self.chosen = split


def test_an_evaluation_takes_the_evaluation_split_of_whatever_knows_splits():
    comlrl_env.register("test/Splitting-v0", Splitting)
    comlrl_env.register("test/Dice-v0", Dice)
    made, why = registry.make_evaluation("test/Splitting-v0")
    assert (made.chosen, why) == ("eval", "")
    made, why = registry.make_evaluation("test/Splitting-v0", split="train")
    assert (made.chosen, why) == ("train", "")
    made, why = registry.make_evaluation("test/Dice-v0")
    assert type(made) is Dice
    assert "it knows no splits), so it plays other seeds of what is learned from" in why
    evaluated, why = registry.make_evaluation("comlrl/Partition-v0", num_things=4)
    assert why == ""
    assert (evaluated.split, evaluated.task.num_things) == ("eval", 4)
    assert evaluated.reset(seed=0)[1]["helper_0"]["item"].startswith("eval/")
    assert registry.make_evaluation("comlrl/Partition-v0", split="train")[0].split == "train"


class TrainOnly(Match):
    def items(self, split):
        return {"train": super().items("train")}[split]


def test_a_task_without_an_evaluation_split_is_evaluated_where_it_learns_and_says_so():
    comlrl_env.register("test/TrainOnly-v0", TrainOnly)
    for made, why in (registry.make_evaluation("test/TrainOnly-v0"), registry.on_evaluation(TextEnv(TrainOnly()))):
        assert made.split == "train"
        assert "there is no split 'eval' (KeyError: 'eval'), so it plays the items that are learned from" in why

    def other_names(split="train"):
        return TextEnv(TrainOnly(), {"train": "train", "test": "eval"}[split])

    comlrl_env.register("test/Test-v0", other_names)
    made, why = registry.make_evaluation("test/Test-v0")
    assert made.split == "train"
    assert "KeyError" in why
