r"""Running code that a model wrote: resource-limited, isolated as far as this system allows, never trusted.

>>> run_calls("def double(x):\n    return 2 * x", "double", [Call((21,))])[0].value
42

The trusted side sends source text and calls, and gets back values of exact builtin types; it judges them itself. What
runs is a fresh process, forked from a small server that was started as a fresh interpreter (never from the trainer,
whose threads and memory it therefore does not have). The process has a private socket, an empty environment, an empty
folder of its own, no other open file, and limits on processor time, memory, file size, open files and processes. It
is killed with everything that it started, and waited for, when its time is over; the next sample gets a new one.
Output goes nowhere, so a million lines of it cost nothing. Each request carries a nonce that the reply must repeat:
bytes that code writes to the socket on its own end the sample, and in any case could only be a value, never a
verdict.

What each isolation (``Pool.isolation``, the strongest that works is taken) adds to that:

``"bubblewrap"``, when ``bwrap`` is installed, and ``"namespaces"``, the same by system calls, as root or where
ordinary users may make namespaces: no network; no files but the standard library and shared libraries, read-only, so
that no data set with its answers can be read; processes of its own, so that one killed process ends all of them,
``setsid`` or not.

``"limits"``, where neither is permitted: files, TCP and signals to other processes are denied by Landlock, as far as
the kernel has it (files since 5.13, TCP since 6.7, signals since 6.12). Processes are found by walking down from the
server, which adopts orphans. The folder of a sample has no limit on its size, only each file in it has.

As root, code runs as an unused unprivileged user, which also makes the limit on processes bind; as an ordinary user
with isolation ``"limits"``, that limit counts all processes of the user. Where both the namespaces and Landlock are
missing, code can read world-readable files and use the network, and as an ordinary user do whatever that user can.

Only the standard library can be imported; with isolation ``"limits"`` as root, of a Python in a private folder
(``/root``) only the usual modules that the server has imported before (``math``, ``re``, ``collections``, ...).

Not covered by any: faults of the kernel; UDP with Landlock alone; what can be learned from timing; the load that
samples put on the machine within their limits (memory is limited per process, not per sample); code that finds out
that it is being tested and behaves differently. Linux only. Against people who mean harm, run the trainer in a
virtual machine.
"""

from comlrl_env.sandbox.box import Box, run_calls
from comlrl_env.sandbox.pool import POOL, Isolation, Pool, SandboxError
from comlrl_env.sandbox.program import Call, Limits, Link, Module, Outcome, Program
from comlrl_env.sandbox.values import NotPlainError

__all__ = [
    "POOL",
    "Box",
    "Call",
    "Isolation",
    "Limits",
    "Link",
    "Module",
    "NotPlainError",
    "Outcome",
    "Pool",
    "Program",
    "SandboxError",
    "run_calls",
]
