"""Processor time of a server's processes and threads, and a sampling profile of its engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ENGINE = "VLLM::EngineCor"
"""Name of the engine's process, as the kernel cuts it off."""

PROFILE_STOP_S = 60


@dataclass(frozen=True)
class CpuTimes:
    """Processor time in ns since each process began.

    ``engine`` is the thread of the engine's loop, ``serialise`` its process' other threads (they
    encode outputs and serve the sockets), ``frontend`` the API server, ``client`` this process.
    """

    engine: int
    serialise: int
    frontend: int
    client: int

    def since(self, before: CpuTimes) -> CpuTimes:
        """What was spent since an earlier reading."""
        return CpuTimes(
            self.engine - before.engine,
            self.serialise - before.serialise,
            self.frontend - before.frontend,
            self.client - before.client,
        )


def engine_pid(group: int) -> int:
    """The engine among the processes of a server's group.

    Raises:
        RuntimeError: there is none.
    """
    for pid, status in of_group(group):
        if ENGINE in status["Name"]:
            return pid
    raise RuntimeError(f"no process named {ENGINE} in process group {group}")


def of_group(group: int) -> Iterator[tuple[int, dict[str, str]]]:
    """Number of each process of a group, and what the kernel's ``status`` file says of it."""
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            pid = int(path.parent.name)
            if os.getpgid(pid) != group:
                continue
            lines = path.read_text().splitlines()
        except OSError:
            continue  # it has ended
        fields = (line.split(":", 1) for line in lines)
        yield pid, {name: value.strip() for name, value in fields}


def cpu_times(server: int, engine: int) -> CpuTimes:
    """Read the clocks of an API server, its engine, and this process."""
    threads = _thread_ns(engine)
    loop_ns = threads.pop(engine)
    return CpuTimes(
        engine=loop_ns,
        serialise=sum(threads.values()),
        frontend=sum(_thread_ns(server).values()),
        client=sum(_thread_ns(os.getpid()).values()),
    )


def _thread_ns(pid: int) -> dict[int, int]:
    """Processor time of each thread, by thread id."""
    times = {}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            times[int(thread.name)] = int((thread / "schedstat").read_text().split()[0])
        except OSError:
            continue  # it has ended
    return times


@contextmanager
def sampled(pid: int, path: Path) -> Iterator[None]:
    """Sample a process' stacks while the body runs; one line for each stack and its count.

    py-spy reads them from outside, so that the process runs as it does without.
    """
    command = [str(Path(sys.executable).with_name("py-spy")), "record", "--pid", str(pid)]
    command += ["--format", "raw", "--rate", "200", "--duration", "unlimited", "--nonblocking"]
    command += ["--output", str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as profiler:
        yield
        profiler.send_signal(signal.SIGINT)
        said, _ = profiler.communicate(timeout=PROFILE_STOP_S)
    if not path.exists():
        raise RuntimeError(f"py-spy wrote no profile: {said.decode(errors='replace')[-500:]}")


def hottest(path: Path, count: int) -> list[tuple[str, float, float]]:
    """(Function, share of samples in it alone, share in it and what it called), hottest first."""
    own: dict[str, int] = {}
    total: dict[str, int] = {}
    samples = 0
    for line in path.read_text(encoding="utf-8").splitlines():
        stack, _, times = line.rpartition(" ")
        names = [_function(frame) for frame in stack.split(";")]
        samples += int(times)
        own[names[-1]] = own.get(names[-1], 0) + int(times)
        for name in set(names):
            total[name] = total.get(name, 0) + int(times)
    ranked = sorted(own, key=lambda name: -own[name])[:count]
    return [(name, own[name] / samples, total[name] / samples) for name in ranked]


def _function(frame: str) -> str:
    """``name (file.py)`` of a frame ``name (path/file.py:12)``."""
    return frame.rpartition(":")[0] + ")" if frame.endswith(")") and ":" in frame else frame
