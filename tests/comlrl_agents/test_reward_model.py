import copy

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from comlrl_agents.learners.marlhf import RewardFit, RewardFitRule
from comlrl_agents.losses import bradley_terry_loss
from comlrl_agents.model_source import load_tokenizer
from comlrl_agents.reward_model import JointRewardModel
from comlrl_agents.reward_text import encode_joint, joint_text
from comlrl_agents.scalar_model import backbone_of, pool_last
from comlrl_env.errors import ConfigError, TrainingError
from comlrl_env.types import Completion, JointTurn, PreferencePair
from tests.comlrl_agents.toys import same_weights, word_model, word_tokenizer

PROMPTS = ("pick red", "pick blue gold gold")
TEXTS = [
    (PROMPTS, ("red", "green gold")),
    (PROMPTS, ("blue blue blue blue", "")),
    (("pick",), ("gold",)),
    (PROMPTS, ("red", "green gold")),
    (("gold", "red red red red red red", "pick"), ("red", "red", "red")),
]


def reward_model(seed=0, **fields):
    return JointRewardModel(backbone_of(word_model(seed, layers=2)), word_tokenizer(), **fields)


def pairs_of(count, turns=1):
    """Winners name gold more often than losers."""
    rng = np.random.default_rng(0)

    def side(word):
        texts = [" ".join([word, *rng.choice(["red", "green", "blue"], size=2)]) for _ in range(2)]
        return tuple(JointTurn(("pick", "pick red"), tuple(Completion(t) for t in texts)) for _ in range(turns))

    return [
        PreferencePair(
            winner=side("gold"), loser=side("blue"), winner_reward=1.0, loser_reward=0.0,
            candidate_reward_mean=0.5, item_key=f"item-{i}",
        )
        for i in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize(("mask", "last"), [("110", 1), ("011", 2), ("101", 2), ("111", 2), ("100", 0)])
def test_the_last_position_with_mask_one_is_read(mask, last):
    states = torch.arange(6.0).view(1, 3, 2)
    kept = torch.tensor([[int(digit) for digit in mask]])
    assert pool_last(states, kept).tolist() == states[:, last].tolist()


def test_a_row_without_a_real_position_is_refused():
    with pytest.raises(ValueError, match="row 1 must have a position with mask 1"):
        pool_last(torch.zeros(2, 3, 4), torch.tensor([[1, 0, 0], [0, 0, 0]]))


def plain_scores(model, texts):
    """One text at a time through the backbone, without padding or sharing."""
    scores = []
    for beginning, rest in model.encode(texts):
        ids = torch.tensor([[*beginning, *rest]])
        scores.append(model.head(model.backbone(input_ids=ids).last_hidden_state[:, -1])[0, 0])
    return torch.stack(scores)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(side):
    from comlrl_agents.tokens import pad

    model = reward_model()
    ids, mask = pad([[*beginning, *rest] for beginning, rest in model.encode(TEXTS)], side)
    torch.testing.assert_close(model(ids, mask), plain_scores(model, TEXTS))


@pytest.mark.parametrize("budget", [None, 20])
def test_a_text_has_the_same_score_in_any_batch(budget):
    model = reward_model()
    expected = plain_scores(model, TEXTS)
    torch.testing.assert_close(model.rewards(TEXTS, budget), expected)
    torch.testing.assert_close(model.rewards(TEXTS[::-1], budget).flip(0), expected)
    torch.testing.assert_close(model.rewards([*TEXTS[:1] * 3, *TEXTS]), torch.cat([expected[:1].repeat(3), expected]))


def test_no_text_has_no_score():
    assert reward_model().score([]) == []


def test_the_text_reads_as_documented():
    assert joint_text(("A?", "B?"), ("a", "b")) == (
        "A task and what a team answered\n\nAgent 1 prompt:\nA?\n\nAgent 1 response:\na\n\n"
        "Agent 2 prompt:\nB?\n\nAgent 2 response:\nb"
    )


class Letters:
    """A tokenizer with a token for each small letter; the headings cost nothing."""

    bos_token_id = None

    def __call__(self, text, add_special_tokens, split_special_tokens=False):
        texts = [text] if isinstance(text, str) else text
        ids = [[ord(letter) for letter in t if "Agent" not in t] for t in texts]
        return {"input_ids": ids[0] if isinstance(text, str) else ids}


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        (None, "abcdefgh" "klm" "xyz" "uv"), (16, "abcdefgh" "klm" "xyz" "uv"), (14, "cdefgh" "klm" "xyz" "uv"),
        (10, "gh" "klm" "yz" "uv"), (5, "klm" "uv"), (4, "kl" "uv"), (2, "k" "u"),
    ],
)  # fmt: skip
def test_prompts_are_cut_first_and_evenly_and_every_response_stays(room, expected):
    beginning, rest = encode_joint(Letters(), [(("abcdefgh", "xyz"), ("klm", "uv"))], room)[0]
    assert beginning
    assert "".join(map(chr, beginning + rest)) == expected


def test_special_tokens_that_an_answer_spells_out_are_text():
    tokenizer = load_tokenizer("tiny")
    assert tokenizer.all_special_ids
    text = f"a goat {''.join(tokenizer.all_special_tokens)} sang"
    ((beginning, rest),) = encode_joint(tokenizer, [((text, "b"), (text, "c"))])
    assert not set(tokenizer.all_special_ids) & {*beginning[1:], *rest}
    assert tokenizer.decode(beginning[1:] + rest) == joint_text((text, "b"), (text, "c"))


def test_a_limit_below_a_token_per_response_is_refused():
    with pytest.raises(ConfigError, match="must leave a token for each of 2 responses, actually 1"):
        encode_joint(Letters(), [(("a", "b"), ("c", "d"))], 1)


@pytest.mark.parametrize("budget", [None, 24])
@pytest.mark.parametrize("turns", [1, 2])
def test_the_gradient_is_autograd_of_the_written_loss(budget, turns, monkeypatch):
    model, pairs = reward_model(), pairs_of(3, turns)
    plain = copy.deepcopy(model)
    sides = [[plain_scores(plain, [(t.prompts, t.texts) for t in s]).sum() for s in (p.winner, p.loser)] for p in pairs]
    expected = bradley_terry_loss(torch.stack([w for w, _ in sides]), torch.stack([lo for _, lo in sides]))
    expected.backward()
    fit = RewardFit(model, RewardFitRule(micro_batch_tokens=budget))
    monkeypatch.setattr(fit.optimizer, "step", lambda progress: {"grad_norm": 0.0})
    assert fit.learn(pairs)["reward_model/loss"] == pytest.approx(expected.item(), abs=1e-6)
    for own, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad, atol=1e-6, rtol=1e-4)


def test_fitting_separates_winners_from_losers():
    model, pairs = reward_model(), pairs_of(24)
    fit = RewardFit(model, RewardFitRule(learning_rate=1e-2))
    before = fit.measure(pairs[16:])
    for _ in range(6):
        for start in range(0, 16, 4):
            fit.learn(pairs[start : start + 4])
    after = fit.measure(pairs[16:])
    assert after["reward_model/held_out_accuracy"] == 1.0
    assert after["reward_model/held_out_margin"] > before["reward_model/held_out_margin"] + 1
    assert fit.measure([]) == {}


def test_a_frozen_backbone_keeps_its_weights_and_optimizer_small():
    model = reward_model()
    before = copy.deepcopy(model)
    fit = RewardFit(model, RewardFitRule(learning_rate=1e-2, freeze_backbone=True))
    fit.learn(pairs_of(4))
    assert same_weights(before.backbone, model.backbone)
    assert not same_weights(before.head, model.head)
    assert len(fit.optimizer.state_dict()["optimizers"]["0"]["state"]) == 2


def test_saved_and_loaded_it_judges_the_same(tmp_path):
    model = reward_model(max_length=40)
    model.save_pretrained(tmp_path)
    loaded = JointRewardModel.from_pretrained(tmp_path, device="cpu")
    assert loaded.max_length == 40
    assert loaded.score(TEXTS) == model.score(TEXTS)
    judged = loaded.judge({"a": "pick red", "b": "pick"}, [{"b": "gold", "a": "red"}])
    assert judged == pytest.approx(model.score([(("pick red", "pick"), ("red", "gold"))]))


def test_another_folder_is_no_reward_model(tmp_path):
    with pytest.raises(ConfigError, match=r"expected a folder with reward_model\.json"):
        JointRewardModel.from_pretrained(tmp_path)


@pytest.mark.parametrize("name", ["reward_model.json", "config.json", "model.safetensors", "scalar_head.safetensors"])
@pytest.mark.parametrize("content", [None, b"{}", b"\x10\0"])
def test_a_damaged_folder_is_named(tmp_path, name, content):
    reward_model().save_pretrained(tmp_path)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=f"reward model '{tmp_path}'"):
        JointRewardModel.from_pretrained(tmp_path, device="cpu")


def test_a_body_without_one_of_its_weights_is_refused(tmp_path):
    reward_model().save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    del weights["norm.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"reward model .* every weight of .* 1 are not there \(norm.weight"):
        JointRewardModel.from_pretrained(tmp_path, device="cpu")


def test_the_head_is_drawn_from_the_seed_alone():
    torch.manual_seed(3)
    one = JointRewardModel(backbone_of(word_model()), word_tokenizer(), seed=5)
    torch.manual_seed(4)
    two = JointRewardModel(backbone_of(word_model()), word_tokenizer(), seed=5)
    assert torch.equal(one.head.weight, two.head.weight)
    assert not torch.equal(one.head.weight, reward_model(seed=0).head.weight)


def test_centring_moves_all_rewards_and_no_difference():
    model, pairs = reward_model(), pairs_of(3)
    fit = RewardFit(model, RewardFitRule(learning_rate=0.0))
    stats, before, measured = fit.learn(pairs), model.score(TEXTS), fit.measure(pairs)
    texts = [(turn.prompts, turn.texts) for pair in pairs for side in (pair.winner, pair.loser) for turn in side]
    assert stats["reward_model/mean"] == pytest.approx(np.mean(model.score(texts)), abs=1e-6)
    fit.centre(pairs)
    assert np.mean(model.score(texts)) == pytest.approx(0, abs=1e-6)
    moved = np.array(before) - np.array(model.score(TEXTS))
    assert moved == pytest.approx(np.full(len(TEXTS), stats["reward_model/mean"]), abs=1e-6)
    assert fit.measure(pairs) == pytest.approx(measured, abs=1e-6)


def test_a_nan_stops_before_a_weight_changes():
    model = reward_model()
    with torch.no_grad():
        model.head.bias.fill_(float("nan"))
    before = copy.deepcopy(model.backbone)
    with pytest.raises(TrainingError, match="the rewards of item 'item-0' must be finite"):
        RewardFit(model, RewardFitRule()).learn(pairs_of(2))
    assert same_weights(before, model.backbone)


def test_the_zero_is_that_of_all_items_and_not_of_the_first_ones():
    model = reward_model()
    pairs = pairs_of(300)  # 128 are asked: every third
    RewardFit(model, RewardFitRule()).centre(pairs)
    asked = [side[0] for pair in pairs[::3] for side in (pair.winner, pair.loser)]
    assert np.mean(model.score([(turn.prompts, turn.texts) for turn in asked])) == pytest.approx(0, abs=1e-5)


def test_a_judge_reads_agents_by_name_and_says_what_it_cannot_read(tmp_path):
    model = reward_model()
    model.agents = ("a", "b")
    model.save_pretrained(tmp_path)
    judge = JointRewardModel.from_pretrained(tmp_path).judge
    prompts, answers = dict(zip("ab", PROMPTS, strict=True)), {"a": "red", "b": "green gold"}
    (direct,) = model.score([(PROMPTS, ("red", "green gold"))])
    (turned,) = model.score([(PROMPTS[::-1], ("green gold", "red"))])
    assert direct != turned
    assert judge(prompts, [answers]) == judge({"b": PROMPTS[1], "a": PROMPTS[0]}, [answers]) == [direct]
    # Agents of other names are read in the order in which they are given.
    others = {"y": PROMPTS[1], "x": PROMPTS[0]}
    assert judge(others, [{"x": "red", "y": "green gold"}]) == [turned]
    for wrong in ({"a": "red"}, {"a": "red", "c": "gold"}, "red", ["red"], {"a": None, "b": "red"}, {"a": 3, "b": ""}):
        with pytest.raises(ConfigError, match=r"must hold one text of each of \['a', 'b'\], actually "):
            judge(prompts, [answers, wrong])
