"""What hostile code can do in the sandbox, under every isolation that this machine offers: nothing that lasts."""

import os
import socket
import tempfile

import pytest

from comlrl_env.sandbox import (
    Call,
    Limits,
    Pool,
    landlock,
)
from tests.comlrl_env.sandboxes import next_sample_is_fine, processes_of, run

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
