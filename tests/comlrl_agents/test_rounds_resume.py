"""Killed by SIGKILL in the middle and resumed: the same, bit for bit, with every comparator and replay mode."""

import os
import signal
import warnings

import pytest
import torch

from comlrl_agents import MADPOIterConfig, MADPOIterTrainer
from tests.comlrl_agents.remote.servers import openai_reply, serving
from tests.comlrl_agents.test_rounds_table import OneWord, Sections
from tests.comlrl_agents.toys import word_policy

KINDS = {
    "current": {"preference_replay_mode": "nearest_k", "preference_replay_k": 2},
    "current_copy": {
        "comparator_devices": "cpu:0", "preference_replay_mode": "lambda_decay", "preference_replay_lambda": 0.5,
        "collaboration_mode": "centralized",
    },
    "model": {"preference_replay_mode": "all_history", "preference_replay_sample_size": 9},
    "history": {"comparator_history_k": 2, "comparator_generation_mode": "centralized"},
    "api": {
        "comparator_api_format": "openai", "comparator_api_model": "m", "preference_replay_mode": "lambda_decay",
        "preference_replay_lambda": 0.0, "preference_replay_sample_size": 5,
    },
}  # fmt: skip


def in_a_process_of_its_own(work, kill_at=None):
    """Runs ``work`` in a fork that kills itself at its n-th fsync; returns whether it came to its end, and the fsyncs.

    Everything that is written down is flushed by an fsync sooner or later, so these are moments all over the run:
    in round files, logs, checkpoints, saved policies.
    """
    told, tell = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of newer Pythons: a fork beside the server's thread
        child = os.fork()
    if child == 0:
        code = 1
        try:
            torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
            real, count = os.fsync, 0

            def fsync(handle):
                nonlocal count
                count += 1
                if count == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(handle)

            os.fsync = fsync
            work()
            os.write(tell, str(count).encode())
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(tell)
    said = os.read(told, 100)
    os.close(told)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return bool(said), int(said or 0)


def final_files(folder):
    kept = [folder / "metrics.jsonl", folder / "samples.jsonl", *sorted(folder.glob("pairs/*.json"))]
    kept += sorted(folder.glob("model/agent_*/model.safetensors"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


@pytest.mark.slow
@pytest.mark.parametrize("comparator", KINDS)
def test_killed_twice_and_resumed_equals_uninterrupted(tmp_path, comparator):
    word_policy(9).save(tmp_path / "other")
    with serving(lambda n, body: openai_reply(*(["red", "gold", "green"] * body["n"])[: body["n"]])) as server:
        own = {"model": {"comparator_model_name": str(tmp_path / "other")}, "api": {"comparator_api_url": server.url}}
        args = MADPOIterConfig(
            num_iterations=3, num_train_epochs=2, preference_num_candidates=6, max_new_tokens=1, temperature=1.0,
            top_p=1.0, top_k=None, agent_learning_rate=1e-2, items_per_round=2, report_to=[], eval_num_samples=1,
            eval_interval=2, train_batch_size=4, comparator_policy=comparator, **KINDS[comparator],
            **own.get(comparator, {}),
        )  # fmt: skip

        def train(folder):
            team = [word_policy(0), word_policy(1)][: args.num_actors]
            run = MADPOIterTrainer(
                OneWord(), agents=team, args=args, output_dir=tmp_path / folder, joint_adapter=Sections()
            )
            run.train(resume_from_checkpoint=True)

        finished, moments = in_a_process_of_its_own(lambda: train("straight"))
        assert finished
        for kill_at in (moments // 4, moments // 3):
            assert not in_a_process_of_its_own(lambda: train("killed"), kill_at)[0]
        assert in_a_process_of_its_own(lambda: train("killed"))[0]
    expected = final_files(tmp_path / "straight")
    assert len(expected) == 2 + 3 + args.num_actors
    assert final_files(tmp_path / "killed") == expected
