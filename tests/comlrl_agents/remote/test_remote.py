"""Remote models on a bad day: a server of our own on loopback that does everything wrong."""

import json
import time

import numpy as np
import pytest

from comlrl_agents import MADPOIterConfig, MADPOIterTrainer
from comlrl_agents.remote import Endpoint, RemotePolicy, transport
from comlrl_agents.types import Sampling
from comlrl_env.errors import ConfigError, TrainingError
from tests.comlrl_agents.remote.servers import anthropic_reply, openai_reply, responses_reply, serving
from tests.comlrl_agents.toys import ColourEnv, same_weights, word_policy

KEY = "sk-very-secret-0123456789"
REPLIES = {
    "generic": lambda n, body: {"completions": [f"t{n}"] * body["num_return_sequences"]},
    "openai": lambda n, body: openai_reply(*[f"t{n}"] * body["n"]),
    "anthropic": lambda n, body: anthropic_reply(f"t{n}"),
    "openai_responses": lambda n, body: responses_reply(f"t{n}"),
}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(transport, "FIRST_PAUSE", 0.01)


def policy(server, kind="openai", **fields):
    return RemotePolicy(Endpoint(**{
        "url": server.url, "format": kind, "model": "m", "timeout": 5.0, "max_retries": 2, **fields
    }), sampling=Sampling(9))  # fmt: skip


def asked(remote, prompts=("one", "two"), n=3, rng=None):
    try:
        return [[g.text for g in group] for group in remote.generate(prompts, n, rng)]
    finally:
        remote.close()


@pytest.mark.parametrize(
    ("kind", "fields", "requests"),
    [
        ("generic", {}, 1),
        ("openai", {}, 1),
        ("openai", {"max_n_per_request": 2}, 2),
        ("anthropic", {}, 3),
        ("openai_responses", {}, 3),
    ],
)
def test_every_format_gives_its_candidates_in_as_many_requests_as_it_must(kind, fields, requests):
    with serving(REPLIES[kind]) as server:
        remote = policy(server, kind, key=KEY, **fields)
        groups = asked(remote)
        assert [len(group) for group in groups] == [3, 3]
        assert len(server.bodies) == 2 * requests
        assert remote.take_counts() == {"requests": 2 * requests, "retries": 0, "cached": 0}
        header = "x-api-key" if kind == "anthropic" else "authorization"
        assert {h[header] for h in server.headers} == {KEY if kind == "anthropic" else f"Bearer {KEY}"}


def test_answers_stay_with_their_prompts_whatever_order_they_come_in():
    def script(number, body):
        text = body["messages"][0]["content"]
        time.sleep(0.05 if text == "one" else 0)
        return openai_reply(*[f"to {text}"] * body["n"])

    with serving(script) as server:
        assert asked(policy(server, max_n_per_request=1)) == [["to one"] * 3, ["to two"] * 3]


RETRIED = ["drop", "half", (500, {}, "oops"), (503, {}, ""), (408, {}, ""), (409, {}, ""), (429, {}, "slow down")]


@pytest.mark.parametrize("wish", RETRIED, ids=str)
def test_what_may_pass_is_tried_again(wish):
    with serving(lambda n, body: wish if n == 0 else openai_reply("fine")) as server:
        remote = policy(server)
        assert asked(remote, ["one"], 1) == [["fine"]]
        assert len(server.bodies) == 2
        assert remote.take_counts()["retries"] == 1


FINAL = [
    (200, {}, "<html>login</html>"),
    (200, {}, "[1, 2"),
    (200, {}, "null"),
    (400, {}, "bad"),
    (401, {}, "who"),
    (404, {}, ""),
    (302, {"Location": "http://127.0.0.1:9/"}, ""),
    {"choices": "wrong"},
    {"choices": []},
    {"choices": [{"message": {"content": None}}]},
    (200, {}, "[" * 100_000),
]


@pytest.mark.parametrize("wish", FINAL, ids=lambda wish: str(wish)[:40])
def test_what_will_not_pass_is_counted_and_left_out(wish):
    with serving(lambda n, body: wish if body["messages"][0]["content"] == "one" else openai_reply("fine")) as server:
        remote = policy(server)
        assert asked(remote, n=1) == [[], ["fine"]]
        assert len(server.bodies) == 2
        assert server.url in remote.last_failure


def test_a_server_that_never_gets_better_ends_after_its_retries():
    with serving(lambda n, body: (500, {}, "oops")) as server:
        remote = policy(server)
        assert asked(remote, ["one"], 1) == [[]]
        assert len(server.bodies) == 3
        assert "HTTP 500" in remote.last_failure


def test_no_server_at_all():
    remote = RemotePolicy(Endpoint("http://127.0.0.1:9/", max_retries=1, timeout=2.0))
    assert asked(remote, ["one"], 1) == [[]]
    assert "ConnectError" in remote.last_failure


@pytest.mark.parametrize("wish", ["stall", "drip"])
def test_a_time_out_is_for_the_whole_request(wish):
    with serving(lambda n, body: wish) as server:
        start = time.monotonic()
        remote = policy(server, timeout=0.3, max_retries=1)
        assert asked(remote, ["one", "two"], 1) == [[], []]
        assert time.monotonic() - start < 3
        assert len(server.bodies) == 4
        assert "within 0.3 s" in remote.last_failure


def test_never_more_requests_in_flight_than_allowed():
    def script(number, body):
        time.sleep(0.02)
        return openai_reply("x")

    with serving(script) as server:
        groups = asked(policy(server, max_n_per_request=1, max_concurrency=3), [str(k) for k in range(8)], 3)
        assert all(len(group) == 3 for group in groups)
        assert server.most_in_flight == 3


def test_retry_after_is_honoured_by_all_requests():
    with serving(lambda n, body: (429, {"Retry-After": "0.4"}, "") if n == 0 else openai_reply("x")) as server:
        remote = policy(server, max_concurrency=1)
        assert asked(remote, n=1) == [["x"], ["x"]]
        assert min(server.times[1:]) - server.times[0] >= 0.4


def test_a_wait_longer_than_the_time_out_is_no_wait():
    with serving(lambda n, body: (429, {"Retry-After": "3600"}, "")) as server:
        remote = policy(server)
        assert asked(remote, ["one"], 1) == [[]]
        assert len(server.bodies) == 1
        assert "asks to wait 3600 s" in remote.last_failure


@pytest.mark.parametrize(("given", "kept"), [(1, 1), (3, 3), (7, 3)])
def test_too_few_and_too_many_choices(given, kept):
    with serving(lambda n, body: openai_reply(*["x"] * given)) as server:
        remote = policy(server)
        assert asked(remote, ["one"], 3) == [["x"] * kept]
        assert bool(remote.last_failure) == (kept < 3)


def test_one_connection_is_used_again():
    with serving(REPLIES["openai"]) as server:
        remote = policy(server, max_concurrency=1)
        first, line = remote.generate(["one"], 1), remote._transport._line
        assert remote.generate(["one"], 1) != first
        assert remote._transport._line is line
        remote.close()
        assert not line.thread.is_alive()


# ------------------------------------------------------------------ the cache


def test_the_cache_answers_the_same_draw_and_no_other(tmp_path):
    with serving(REPLIES["anthropic"]) as server:
        remote = policy(server, "anthropic", cache_dir=str(tmp_path), key=KEY)
        first = asked(remote, rng=np.random.default_rng(1))
        assert asked(remote, rng=np.random.default_rng(1)) == first
        assert len(set(first[0])) == 3  # equal requests of one call are kept apart
        assert remote.take_counts() == {"requests": 6, "retries": 0, "cached": 6}
        assert asked(remote, rng=np.random.default_rng(2)) != first
        for path in tmp_path.iterdir():
            path.write_bytes(path.read_bytes()[:-1])  # damaged
        assert asked(remote, rng=np.random.default_rng(1)) != first
        assert len(server.bodies) == 18


def test_failures_are_not_kept(tmp_path):
    with serving(lambda n, body: (500, {}, "") if n < 3 else {"choices": []} if n < 4 else openai_reply("x")) as server:
        remote = policy(server, cache_dir=str(tmp_path))
        texts = [asked(remote, ["one"], 1, np.random.default_rng(1)) for _ in range(3)]
        assert texts == [[[]], [[]], [["x"]]]
        assert len(list(tmp_path.iterdir())) == 1


# ------------------------------------------------------------------ as a comparator


SMALL = {
    "agent_learning_rate": 2e-2, "preference_num_candidates": 4, "max_new_tokens": 2, "temperature": 1.0,
    "top_p": 1.0, "top_k": None, "train_batch_size": 8, "items_per_round": 2, "num_iterations": 2, "report_to": [],
    "comparator_policy": "api", "comparator_api_format": "openai", "comparator_api_model": "m", "eval_num_samples": 1,
    "comparator_api_max_retries": 1, "drift_samples": 0,
}  # fmt: skip


def trainer(folder, server, **fields):
    args = MADPOIterConfig(**(SMALL | {"comparator_api_url": server.url} | fields))
    return MADPOIterTrainer(ColourEnv(), agents=[word_policy(0), word_policy(1)], args=args, output_dir=folder)


def everything(folder):
    return b"\n".join(path.read_bytes() + str(path).encode() for path in sorted(folder.rglob("*")) if path.is_file())


def test_a_round_goes_on_with_what_it_has_and_counts_the_rest(tmp_path):
    def script(number, body):
        # A round is two items, two agents and two requests each; the server repeats the key wherever it can.
        return (400, {}, f"oops {KEY}") if number % 8 == 1 else openai_reply(*[f"red {KEY}"] * body["n"])

    with serving(script) as server:
        run = trainer(tmp_path, server, comparator_api_key=KEY, comparator_api_headers={"X-Auth": "another-secret-1"},
                      comparator_api_max_concurrency=1, comparator_api_max_n_per_request=2)  # fmt: skip
        run.train()
    collected = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    rounds = [row for row in collected if "comparator/failed" in row]
    assert len(rounds) == 2
    for row in rounds:
        counts = [row[f"comparator/{name}"] for name in ("candidates", "failed", "requests", "retries")]
        assert counts == [6, 2, 8, 0]
    assert len(server.bodies) == 16
    texts = [
        pair for path in sorted((tmp_path / "pairs").glob("*.json")) for pair in json.loads(path.read_text())["pairs"]
    ]
    assert any("red ***" in p["winner_completions"] + p["loser_completions"] for p in texts)
    found = everything(tmp_path)
    assert b"red ***" in found
    for secret in (KEY, "another-secret-1"):
        assert secret.encode() not in found
        assert secret not in repr(run.args)
        assert secret not in repr(run.args.comparator)


def test_a_key_that_comes_back_in_escapes_is_hidden_too():
    escaped = "".join(f"\\u{ord(character):04x}" for character in KEY)
    said = json.dumps(openai_reply("red KEY")).replace("KEY", escaped)
    assert json.loads(said)["choices"][0]["message"]["content"] == f"red {KEY}"
    with serving(lambda n, body: (200, {}, said)) as server:
        assert asked(policy(server, key=KEY), ["one"], 1) == [["red ***"]]


def test_a_round_stops_only_when_there_is_nothing_at_all_and_never_shows_the_key(tmp_path):
    import traceback

    with serving(lambda n, body: (401, {}, f"Incorrect API key: {KEY}")) as server:
        with pytest.raises(TrainingError, match=r"comparator: all 16 candidates|comparator: all 8 candidates") as error:
            trainer(tmp_path, server, comparator_api_key=KEY).train()
        assert "HTTP 401" in str(error.value)
        assert KEY not in "".join(traceback.format_exception(error.value))
    assert KEY.encode() not in everything(tmp_path)


def test_a_resumed_run_equals_an_uninterrupted_one_with_a_remote_comparator(tmp_path):
    """The rounds that are collected stand in their files; only a round under way is asked for again."""

    def script(number, body):
        return openai_reply(*["red" if len(body["messages"][0]["content"]) % 2 else "green"] * body["n"])

    with serving(script) as server:
        straight = trainer(tmp_path / "straight", server, num_iterations=2, num_train_epochs=2)
        straight.train()
        stopped = trainer(tmp_path / "stopped", server, num_iterations=2, num_train_epochs=2)
        learn, calls = stopped.learning.learn, []

        def interrupt(*args):
            calls.append(1)
            if len(calls) == 2:
                raise KeyboardInterrupt
            return learn(*args)

        stopped.learning.learn = interrupt
        with pytest.raises(KeyboardInterrupt):
            stopped.train()
        again = trainer(tmp_path / "stopped", server, num_iterations=2, num_train_epochs=2)
        again.train(resume_from_checkpoint=True)
    for one, two in zip(straight.policies, again.policies, strict=True):
        assert same_weights(one.model, two.model)


def test_a_missing_key_is_refused_before_anything_is_loaded(tmp_path, monkeypatch):
    from comlrl_agents import trainer as module

    monkeypatch.setattr(module, "load_team", lambda *_: pytest.fail("loaded"))
    with pytest.raises(ConfigError, match="NOT_THERE is not set"):
        MADPOIterTrainer(ColourEnv(), args=MADPOIterConfig(**(SMALL | {
            "comparator_api_url": "http://h", "comparator_api_key_env": "NOT_THERE"
        })), output_dir=tmp_path)  # fmt: skip
