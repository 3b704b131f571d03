"""Each property of the sandbox, with an attempt to break it, under every isolation that this machine offers."""

import contextlib
import glob
import math
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from comlrl_env.sandbox import (
    POOL,
    Box,
    Call,
    Isolation,
    Limits,
    Link,
    Module,
    NotPlainError,
    Outcome,
    Pool,
    Program,
    SandboxError,
    jail,
    landlock,
    run_calls,
    values,
)

QUICK = Limits(cpu_seconds=0.3, wall_seconds=3.0)


@pytest.fixture(scope="module", params=["bubblewrap", "namespaces", "limits"])
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    isolation: Isolation = request.param
    offered = Pool(isolation)
    try:
        assert offered.isolation == isolation
    except SandboxError as error:
        pytest.skip(f"not offered here: {error}")
    yield offered
    offered.close()


def run(pool: Pool, source: str, *calls: Call, limits: Limits = QUICK) -> list[Outcome]:
    with Box(limits, pool) as box:
        box.load(Program((Module("m", textwrap.dedent(source)),), ("m", "f")))
        return box.run(calls or [Call()])


def next_sample_is_fine(pool: Pool) -> bool:
    (outcome,) = run(pool, "def f(x):\n    return sorted(x), len(x), str(sum(x)), isinstance(x, list)", Call(([3, 1],)))
    return outcome.value == ([1, 3], 2, "4", True)


def processes_of(pool: Pool) -> int:
    """How many processes live below this one; the idle servers are among them, samples are not."""
    return len(jail.descendants(os.getpid()))


HOSTILE = {
    "infinite loop": ("def f():\n    while True: pass", "hung"),
    "sleep": ("import time\ndef f():\n    time.sleep(99)", "hung"),
    "loop at import": ("while True: pass", "hung"),
    "loop that ignores signals": (
        """
        import signal
        for number in range(1, 65):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        def f():
            while True: pass
        """,
        "hung",
    ),
    "stops itself": (
        "import os, signal\ndef f():\n    os.kill(os.getpid(), signal.SIGSTOP)\n    import time; time.sleep(9)",
        "hung",
    ),
    "regular expression without end": ("import re\ndef f():\n    re.match('(a+)+$', 'a' * 99 + 'b')", "hung"),
    "big memory": ("def f():\n    return len(bytearray(1 << 40))", "raised"),
    "growing memory": ("def f():\n    x = [0]\n    while True: x = x + x", "raised"),
    "os._exit(0)": ("import os\ndef f():\n    os._exit(0)", "died"),
    "os._exit at import": ("import os\nos._exit(0)", "died"),
    "SystemExit": ("def f():\n    raise SystemExit(0)", "raised"),
    "KeyboardInterrupt": ("def f():\n    raise KeyboardInterrupt", "raised"),
    "endless recursion": ("def f():\n    return f()", "raised"),
    "deep recursion": ("import sys\nsys.setrecursionlimit(10**9)\ndef f():\n    return f()", None),
    "segmentation fault": ("import ctypes\ndef f():\n    ctypes.string_at(0)", "died"),
    "closed standard output": (
        "import sys, os\ndef f():\n    sys.stdout.close(); os.close(1); os.close(2); return 7",
        "ok",
    ),
    "bytes that drip": (
        """
        import os, time
        def f():
            os.write(3, b"\\0\\0\\xff\\xff")
            while True:
                os.write(3, b" ")
                time.sleep(0.001)
        """,
        "hung",
    ),
    "everything closed": ("import os\ndef f():\n    os.closerange(0, 99); return 7", "died"),
    "a million lines": ("def f():\n    for i in range(1_000_000): print('line', i)\n    return 7", "ok"),
    "exception that hides": (
        "class E(Exception):\n    def __str__(self): raise SystemExit\ndef f():\n    raise E",
        "raised",
    ),
    "kill everything": ("import os\ndef f():\n    os.kill(-1, 9)\n    while True: pass", None),
    "kill the parent": ("import os\ndef f():\n    os.kill(os.getppid(), 9)\n    while True: pass", None),
    "huge value": ("def f():\n    return 'x' * 5_000_000", "alien"),
    "endless value": ("def f():\n    x = []; x.append(x); return x", "alien"),
    "object": ("def f():\n    return object()", "alien"),
    "generator": ("def f():\n    yield 1", "alien"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_code_is_survived_and_leaves_nothing(pool: Pool, name: str) -> None:
    source, kind = HOSTILE[name]
    if name.startswith("kill") and os.getuid() != 0:
        need_landlock(pool, 6)  # without it the code may end every process of this user, this one too
    before = processes_of(pool)
    patient = name in {"a million lines", "growing memory"}
    limits = (
        Limits(cpu_seconds=5.0, wall_seconds=9.0, memory_bytes=128 << 20)
        if patient
        else Limits(cpu_seconds=0.3, wall_seconds=1.0)
    )
    (outcome,) = run(pool, source, limits=limits)
    assert kind is None or outcome.kind == kind, outcome
    assert outcome.ok == (kind == "ok")
    assert outcome.ok or outcome.reason
    assert next_sample_is_fine(pool)
    assert processes_of(pool) == before


def test_children_that_leave_the_group_die_with_the_sample(pool: Pool) -> None:
    source = """
        import os, time
        def f():
            for _ in range(3):
                if os.fork() == 0:
                    os.setsid()
                    if os.fork() == 0:
                        time.sleep(1000)
                    os._exit(0)
            return 1
        """
    before = processes_of(pool)
    assert run(pool, source)[0].value == 1
    assert processes_of(pool) == before


def test_a_fork_bomb_is_bounded_and_cleared(pool: Pool) -> None:
    source = """
        import os
        def f():
            children = 0
            try:
                while True:
                    if os.fork() == 0:
                        while True:
                            try: os.fork()
                            except OSError: pass
                    children += 1
            except OSError:
                return children
        """
    before = processes_of(pool)
    (outcome,) = run(pool, source, limits=Limits(cpu_seconds=3.0, wall_seconds=3.0))
    if outcome.ok:
        assert outcome.value <= 16
    assert processes_of(pool) == before
    assert next_sample_is_fine(pool)


def test_patched_builtins_and_modules_do_not_reach_the_next_sample(pool: Pool) -> None:
    source = """
        import builtins, json, math, os, random, struct, sys, time
        def lie(*_a, **_k): return 0
        for name in ("len", "sorted", "isinstance", "sum", "str", "repr", "type"):
            setattr(builtins, name, lie)
        json.dumps = math.sqrt = struct.pack = os.fork = time.sleep = lie
        sys.modules.clear()
        def f(): return 1
        """
    run(pool, source)
    assert next_sample_is_fine(pool)
    (outcome,) = run(pool, "import math\ndef f():\n    return math.sqrt(4), len('abc')")
    assert outcome.value == (2.0, 3)


def test_an_object_that_equals_everything_never_arrives(pool: Pool) -> None:
    methods = ["__eq__", "__ne__", "__lt__", "__gt__", "__le__", "__ge__", "__bool__", "__contains__"]
    body = "\n".join(f"    def {name}(self, *_): return True" for name in methods)
    for base, kind in (
        ("object", "alien"),
        ("int", "ok"),
        ("str", "ok"),
        ("list", "ok"),
        ("dict", "ok"),
        ("float", "ok"),
    ):
        hashing = "    __hash__ = object.__hash__\n"
        source = f"class Any({base}):\n{hashing}{body}\ndef f():\n    return Any()"
        (outcome,) = run(pool, source)
        assert outcome.kind == kind
        assert type(outcome.value) in {type(None), int, str, list, dict, float}
        assert outcome.value != 12345
    spoofed = "class C:\n    @property\n    def __class__(self): return int\ndef f():\n    return C()"
    assert run(pool, spoofed)[0].kind == "alien"


def test_forged_bytes_on_the_private_socket_are_never_a_result(pool: Pool) -> None:
    source = """
        import os, json, struct
        def say(message):
            body = json.dumps(message).encode()
            for descriptor in range(3, 40):
                try: os.write(descriptor, struct.pack(">I", len(body)) + body)
                except OSError: pass
        def f(x):
            if x == 1: say({"nonce": "0" * 16, "value": 42})
            if x == 2: say({"value": 42})
            if x == 3: say([42])
            if x == 4: say({"ended": 1, "status": 0, "passed": True})
            if x == 5:
                for descriptor in range(3, 40):
                    try: os.write(descriptor, b"\\xff" * 64)
                    except OSError: pass
            if x == 6: say({"ready": True})
            return x
        """
    outcomes = run(pool, source, *[Call((x,)) for x in range(7)])
    assert [outcome.kind for outcome in outcomes] == ["ok"] + ["died"] * 6
    assert outcomes[0].value == 0
    assert all("own" in outcome.reason for outcome in outcomes[1:])
    assert next_sample_is_fine(pool)


def test_code_that_finds_the_nonce_can_send_a_value_but_nothing_else(pool: Pool) -> None:
    source = """
        import json, os, struct, sys
        def f(secret):
            frame = sys._getframe()
            while "request" not in frame.f_locals: frame = frame.f_back
            nonce = frame.f_locals["request"]["nonce"]
            body = json.dumps({"nonce": nonce, "value": {"x": []} if secret else 5, "passed": True}).encode()
            os.write(3, struct.pack(">I", len(body)) + body)
            os._exit(0)
        """
    forged, malformed = run(pool, source, Call((False,)), Call((True,)))
    assert forged.value == 5  # it could have returned 5 just as well; the verdict on 5 is not its own
    assert malformed.kind == "died"
    assert next_sample_is_fine(pool)


def test_what_a_sample_finds_around_it(pool: Pool) -> None:
    source = """
        import os, sys
        def f():
            open("file", "w").write("x")
            return dict(os.environ), os.getcwd(), os.listdir("."), os.getuid(), sorted(sys.modules)
        """
    os.environ["COMLRL_SECRET"] = "x"
    (outcome,) = run(pool, source)
    del os.environ["COMLRL_SECRET"]
    environment, folder, files, user, modules = outcome.value
    assert environment == {}
    assert files == ["file"]
    assert user != 0
    assert folder != os.getcwd()
    assert not any(name.startswith(("comlrl", "numpy", "torch")) for name in modules)
    again = run(pool, source)[0].value
    assert again[2] == ["file"]  # an empty folder again
    assert not os.path.exists(os.path.join(folder, "file"))


def test_no_descriptor_but_the_private_one_is_open(pool: Pool) -> None:
    source = """
        import os
        def f():
            found = []
            for n in range(3, 1000):
                try: os.fstat(n); found.append(n)
                except OSError: pass
            return found
        """
    with open(__file__) as kept, tempfile.TemporaryFile() as other:
        assert kept.fileno() != other.fileno()
        assert run(pool, source)[0].value == [3]


def need_landlock(pool: Pool, version: int) -> None:
    if pool.isolation == "limits" and landlock.version() < version:
        pytest.skip(f"isolation 'limits' cannot do this without version {version} of Landlock")


def test_files_of_this_machine_cannot_be_read_or_written(pool: Pool) -> None:
    need_landlock(pool, 1)
    with tempfile.NamedTemporaryFile("w+") as secret:
        secret.write("42")
        secret.flush()
        os.chmod(secret.name, 0o666)
        source = f"def f(mode):\n    return open({secret.name!r}, mode).read()"
        outcomes = run(pool, source, Call(("r",)), Call(("a+",)))
        secret.seek(0)
        assert secret.read() == "42"
    assert [outcome.kind for outcome in outcomes] == ["raised", "raised"]


def test_there_is_no_network(pool: Pool) -> None:
    need_landlock(pool, 4)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        source = f"import socket\ndef f():\n    socket.create_connection(('127.0.0.1', {port}), 1)"
        assert run(pool, source)[0].kind == "raised"


def test_limits_on_files(pool: Pool) -> None:
    source = """
        def big(): open("big", "wb").write(bytes(5 << 20))
        def many(): return [open("/dev/null") for _ in range(100)]
        def f(name): globals()[name]()
        """
    big, many = run(pool, source, Call(("big",)), Call(("many",)))
    assert big.kind == many.kind == "raised"
    assert "File too large" in big.reason
    assert "Too many open files" in many.reason


def test_the_folder_of_a_sample_is_gone_even_when_it_resists(pool: Pool) -> None:
    source = """
        import os
        def f():
            os.makedirs("a/b/c")
            open("a/b/c/file", "w").write("x")
            os.symlink("/", "a/root")
            os.chmod("a/b", 0); os.chmod("a", 0)
            return os.getcwd()
        """
    folder = run(pool, source)[0].value
    assert not os.path.exists(os.path.join(folder, "a"))
    assert os.path.isdir("/usr")
    assert next_sample_is_fine(pool)


def test_later_calls_go_on_after_one_that_hangs_or_dies(pool: Pool) -> None:
    source = """
        import os
        def f(x):
            if x == "hang":
                while True: pass
            if x == "die": os._exit(3)
            if x == "raise": raise ValueError("no")
            return x
        """
    wanted = ["a", "hang", "b", "die", "raise", "c"]
    outcomes = run(pool, source, *[Call((x,)) for x in wanted])
    assert [outcome.kind for outcome in outcomes] == ["ok", "hung", "ok", "died", "raised", "ok"]
    assert [outcome.value for outcome in outcomes if outcome.ok] == ["a", "b", "c"]
    assert "exit status 3" in outcomes[3].reason
    assert outcomes[4].reason == "ValueError: no"
    limited = run(pool, source, *[Call(("hang",))] * 9, limits=Limits(cpu_seconds=0.1, max_hangs=2))
    assert [outcome.reason for outcome in limited].count("not tried after 2 calls that ran out of time") == 7


def test_the_time_limit_counts_processor_time(pool: Pool) -> None:
    """A program that waits longer than its processor time allows is fine; one that computes is not."""
    source = "import time\ndef f(x):\n    time.sleep(x)\n    return 1"
    assert run(pool, source, Call((0.8,)))[0].ok
    busy = "def f():\n    while True: pass"
    (outcome,) = run(pool, busy, limits=Limits(cpu_seconds=0.2, wall_seconds=30.0))
    assert outcome.reason == "no answer within 0.2 s of processor time"


def test_modules_are_given_functions_and_cannot_keep_their_own(pool: Pool) -> None:
    helper = Module("helper", "def aux(x):\n    return x * 2\ndef f(x):\n    return 'helper'")
    author = "def aux(x):\n    return 'mine'\ndef f(x):\n    return aux(x), aux(x + 1)"
    with Box(QUICK, pool) as box:
        program = Program(
            (helper, Module("author", author, {"aux": Link("helper", "aux", watch=True)})), ("author", "f")
        )
        assert box.load(program).ok
        (outcome,) = box.run([Call((3,))])
        assert outcome.value == (6, 8)
        assert [one.value for one in outcome.watched] == [6, 8]
        box.load(Program((Module("author", author, {"aux": Link(constant=[1])}),), ("author", "f")))
        assert box.run([Call((3,))])[0].value == ([1], [1])
        box.load(
            Program((Module("helper", ""), Module("author", author, {"aux": Link("helper", "aux")})), ("author", "f"))
        )
        assert "NameError" in box.run([Call((3,))])[0].reason


def test_a_program_that_does_not_load_says_why_for_each_call(pool: Pool) -> None:
    for source, reason in (("def f(:", "SyntaxError"), ("import numpy", "ModuleNotFoundError"), ("x = 1", "NameError")):
        outcomes = run(pool, source, Call(), Call())
        assert [outcome.kind for outcome in outcomes] == ["raised", "raised"]
        assert reason in outcomes[0].reason


def test_the_same_code_gives_the_same_answer(pool: Pool) -> None:
    """Hash order and the random module are fixed, in every process."""
    source = "import random\ndef f():\n    return list({'a', 'b', 'c', 'd', 'e'}), random.random()"
    fresh = Pool(pool.isolation)
    assert run(pool, source)[0].value == run(pool, source)[0].value == run(fresh, source)[0].value
    fresh.close()


@pytest.mark.slow
def test_many_samples_at_once_from_threads(pool: Pool) -> None:
    """Hundreds of samples, hostile ones among them, on all processors: each gets its own answer."""
    source = """
        import os
        def f(x):
            if x % 50 == 1: os._exit(1)
            if x % 50 == 2: raise SystemExit
            if x % 100 == 3:
                while True: pass
            return x * x
        """
    before = threading.active_count()

    def one(x: int) -> Outcome:
        return run(pool, source, Call((x,)))[0]

    count = 250 if pool.isolation == "namespaces" else 60
    with ThreadPoolExecutor(2 * len(os.sched_getaffinity(0))) as threads:
        outcomes = list(threads.map(one, range(count)))
    for x, outcome in enumerate(outcomes):
        if x % 100 == 3:
            assert outcome.kind == "hung"
        elif x % 50 == 1:
            assert outcome.kind == "died"
        elif x % 50 == 2:
            assert outcome.kind == "raised"
        else:
            assert outcome.value == x * x
    assert threading.active_count() == before
    pool.close()
    assert not [line for line in open_descriptors() if "comlrl-sandbox" in line]


def open_descriptors() -> list[str]:
    return [os.readlink(path) for path in glob.glob("/proc/self/fd/*") if os.path.islink(path)]


def test_no_zombie_no_process_and_no_folder_is_left() -> None:
    script = """
        import os, glob, tempfile
        from comlrl_env.sandbox import Call, Pool, run_calls, jail, POOL
        source = "import os, time\\ndef f():\\n  if os.fork() == 0:\\n    os.setsid(); time.sleep(1000)\\n  os._exit(0)"
        for _ in range(3):
            run_calls(source, "f", [Call()])
        POOL.close()
        print(jail.descendants(os.getpid()), glob.glob(os.path.join(tempfile.gettempdir(), "comlrl-sandbox-*")))
        """
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
            env=os.environ | {"TMPDIR": folder},
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert result.stdout.strip() == "[] []", result
    assert result.stderr == ""


@pytest.mark.parametrize("isolation", ["namespaces", "limits"])
def test_when_the_trainer_is_killed_the_sample_and_the_server_end(isolation: Isolation) -> None:
    script = f"""
        import glob, os, sys
        from comlrl_env.sandbox import *
        with Box(Limits(wall_seconds=60), Pool({isolation!r})) as box:
            box.load(Program((Module("m", "import time\\ndef f():\\n    time.sleep(1000)"),), ("m", "f")))
            print("ready", flush=True)
            box.run([Call()])
        """
    with tempfile.TemporaryDirectory() as folder:
        trainer = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script)], env=os.environ | {"TMPDIR": folder}, stdout=subprocess.PIPE
        )
        assert trainer.stdout is not None
        if trainer.stdout.readline() != b"ready\n":
            pytest.skip("not offered here")
        time.sleep(0.2)
        family = jail.descendants(trainer.pid)
        assert len(family) >= 2
        trainer.send_signal(signal.SIGKILL)
        trainer.communicate()
        deadline = time.monotonic() + 10
        while (left := [pid for pid in family if is_running(pid)]) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert left == []
        assert os.listdir(folder) == []


def is_running(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def kill_all_below() -> None:
    """This file starts no processes but servers and samples."""
    for process in jail.descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def test_a_killed_server_is_replaced_or_reported() -> None:
    pool = Pool()
    assert next_sample_is_fine(pool)
    kill_all_below()
    assert next_sample_is_fine(pool)
    box = Box(QUICK, pool)
    box.load(Program((Module("m", "def f():\n    return 1"),), ("m", "f")))
    kill_all_below()
    with pytest.raises(SandboxError):
        box.run([Call()])
    box.close()
    assert next_sample_is_fine(pool)
    pool.close()


def test_a_forked_trainer_does_not_talk_to_its_parents_servers() -> None:
    def mine(value: int) -> bool:
        source = f"def f():\n    return {value}"
        return all(run_calls(source, "f", [Call()])[0].value == value for _ in range(20))

    assert mine(1)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if mine(2) else 1
        finally:
            POOL.close()
            os._exit(code)
    assert mine(3)  # at the same time
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def random_plain(rng: random.Random, depth: int) -> object:
    scalars = [
        None,
        True,
        False,
        0,
        -7,
        10**40,
        -(2**63),
        2**63,
        0.5,
        -0.0,
        math.inf,
        1e300,
        "",
        "é\ud800",
        b"\x00\xff",
        2 - 3j,
    ]
    if depth == 0:
        return rng.choice(scalars)
    members = [random_plain(rng, depth - 1) for _ in range(rng.randrange(4))]
    hashable = [rng.choice(scalars) for _ in range(rng.randrange(4))]
    return rng.choice(
        [members, tuple(members), set(hashable), frozenset(hashable), dict(zip(hashable, members, strict=False))]
    )


def test_plain_values_cross_unchanged() -> None:
    rng = random.Random(0)
    for _ in range(500):
        value = random_plain(rng, 3)
        frames = values.Frames(1 << 20)
        (message,) = [m for byte in values.pack(values.encode(value)) for m in frames.feed(bytes([byte]))]
        back = values.decode(message)
        assert back == value
        assert repr(back) == repr(value) or isinstance(value, set | frozenset) or "{" in repr(value)


def test_malformed_values_are_refused() -> None:
    for data in (
        {},
        {"x": 1},
        {"t": 5},
        {"t": 1, "s": 2},
        {"s": [[1]]},
        {"d": [[1]]},
        {"i": "zz"},
        {"c": ["a", 1]},
        {"b": "q"},
    ):
        with pytest.raises(NotPlainError):
            values.decode(data)
    deep: object = []
    for _ in range(100_000):
        deep = [deep]
    for bad in (deep, lambda: 0, range(3), object()):
        with pytest.raises(NotPlainError):
            values.encode(bad)
    for broken in (
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x01{",
        values.pack([])[:4].replace(b"\x02", b"\x64") + b"[" * 100,
    ):
        frames = values.Frames(1 << 10)
        assert frames.feed(values.pack([7]) + broken + values.pack([8])) == [[7]]
        assert frames.broken
    frames = values.Frames(1 << 30)
    assert frames.feed(values.HEADER.pack(200_000) + b"[" * 200_000) == []
    assert "JSON" in frames.broken
