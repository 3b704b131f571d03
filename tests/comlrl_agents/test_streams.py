import json

from comlrl_agents.streams import Streams


def test_a_stream_does_not_depend_on_the_others_or_their_order():
    first, second = Streams(7), Streams(7)
    first["a"].random(100)
    assert (first["b"].random(5) == second["b"].random(5)).all()


def test_names_and_seeds_differ():
    draws = {
        tuple(streams[name].integers(2**31, size=4))
        for streams in (Streams(0), Streams(1))
        for name in ("policy", "comparator")
    }
    assert len(draws) == 4


def test_state_round_trip_through_json():
    streams = Streams(3)
    streams["a"].random(10)
    state = json.loads(json.dumps(streams.state_dict()))
    expected = streams["a"].random(5)
    resumed = Streams(3)
    resumed["b"].random(2)
    resumed.load_state_dict(state)
    assert (resumed["a"].random(5) == expected).all()
    assert (resumed["b"].random(5) == Streams(3)["b"].random(5)).all()


def test_fresh_starts_over():
    streams = Streams(3)
    first = streams.fresh("eval").random(3)
    assert (streams.fresh("eval").random(3) == first).all()
