import threading
import time

import pytest

from comlrl_agents import LLMPolicy, MADPOIterConfig, MADPOIterTrainer, RLConfig, RLTrainer
from comlrl_agents.concurrency import for_each_agent
from tests.comlrl_agents.toys import ColourEnv, same_weights, word_model, word_policy, word_tokenizer


def test_different_models_work_at_the_same_time_and_sharing_ones_take_turns():
    together = threading.Barrier(2, timeout=20)  # passes only when two are there at once
    one, two = object(), object()
    assert for_each_agent(lambda agent: together.wait() >= 0 and agent, [one, two], concurrent=True) == [0, 1]
    busy = threading.Lock()

    def alone(agent):
        assert busy.acquire(blocking=False)
        time.sleep(0.01)
        busy.release()
        return agent

    assert for_each_agent(alone, [one, one, one], concurrent=True) == [0, 1, 2]
    assert (
        for_each_agent(lambda agent: threading.current_thread(), [one, two], concurrent=False)
        == [threading.main_thread()] * 2
    )


def test_the_first_agents_error_is_raised_after_all_have_ended():
    ended = []

    def work(agent):
        time.sleep(0.02 * agent)
        ended.append(agent)
        raise ValueError(f"agent {agent}")

    with pytest.raises(ValueError, match="agent 0"):
        for_each_agent(work, [object(), object(), object()], concurrent=True)
    assert sorted(ended) == [0, 1, 2]


@pytest.mark.parametrize("micro", [None, 64])
def test_agents_in_parallel_learn_what_they_learn_one_after_another(tmp_path, micro):
    """Three agents, two of which share a model; the same numbers, bit for bit."""
    weights = {}
    for mode in ("none", "mp"):
        args = MADPOIterConfig(
            num_agents=3, num_iterations=2, preference_num_candidates=4, max_new_tokens=2, temperature=1.0, top_p=1.0,
            top_k=None, agent_learning_rate=2e-2, train_batch_size=8, items_per_round=2, report_to=[], drift_samples=0,
            parallel_training=mode, agent_devices="cpu", micro_batch_tokens=micro, eval_num_samples=1,
        )  # fmt: skip
        shared = word_model(1)
        team = [word_policy(0).model, shared, shared]
        run = MADPOIterTrainer(
            ColourEnv(("a", "b", "c")), agents=team, tokenizer=word_tokenizer(), args=args, output_dir=tmp_path / mode
        )
        run.train()
        weights[mode] = run.policies
    for one, two in zip(weights["none"], weights["mp"], strict=True):
        assert same_weights(one.model, two.model)
    assert not same_weights(weights["mp"][0].model, word_model(0))


def test_agents_in_parallel_learn_from_rewards_what_they_learn_one_after_another(tmp_path, monkeypatch):
    weights, threads = {}, {}
    sample = LLMPolicy.generate
    for mode in ("none", "mp"):
        seen = threads[mode] = set()

        def watched(policy, *args, seen=seen, **kwargs):
            seen.add(threading.current_thread())
            return sample(policy, *args, **kwargs)

        monkeypatch.setattr(LLMPolicy, "generate", watched)
        args = RLConfig(
            num_agents=3, num_train_epochs=2, max_new_tokens=2, temperature=1.0, top_p=1.0, top_k=None,
            agent_learning_rate=2e-2, items_per_round=4, report_to=[], drift_samples=0, parallel_training=mode,
            agent_devices="cpu", eval_num_samples=1, eval_interval=10_000,
        )  # fmt: skip
        team = [word_model(seed) for seed in range(3)]
        trainer = RLTrainer(
            ColourEnv(("a", "b", "c")), agents=team, tokenizer=word_tokenizer(), args=args, output_dir=tmp_path / mode
        )
        monkeypatch.setattr(trainer, "log_evaluation", dict)
        trainer.train()
        weights[mode] = trainer.policies
    assert threads["none"] == {threading.current_thread()}
    assert len(threads["mp"]) >= 2
    assert threading.current_thread() not in threads["mp"]
    for one, two in zip(weights["none"], weights["mp"], strict=True):
        assert same_weights(one.model, two.model)
    assert not same_weights(weights["mp"][0].model, word_model(0))
