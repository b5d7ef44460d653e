"""Runs what a sweep has not run yet: one server start for each distinct server setting."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sendnn_bench import own_server
from sendnn_bench.client_worker import ClientWorker
from sendnn_bench.errors import BenchError, Interrupted, ResultError, ServerUnreachable
from sendnn_bench.results import load
from sendnn_bench.sweep.grid import Point, label
from sendnn_bench.sweep.identity import is_complete
from sendnn_bench.sweep.plan import Plan
from sendnn_bench.sweep.progress import Progress
from sendnn_bench.sweep.summary import Row, Summary, done_row, open_row

LOGS = "logs"
MESSAGE_LENGTH = 600
WORKER_LOG = "client.log"


@dataclass(frozen=True)
class Server:
    """A server that answers; ``alive`` says whether it still runs, as far as that is known."""

    base_url: str
    alive: Callable[[], bool]


Start = Callable[[Sequence[str], Path], AbstractContextManager[Server]]
"""Makes the context manager of a server with these flags and its output in this file."""


class Client:
    """A client process that is started when it is needed, and anew after it died."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._stack = ExitStack()
        self._worker: ClientWorker | None = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()

    def start(self) -> ClientWorker:
        """The process; it imports vLLM by itself, while a server starts."""
        if self._worker is None:
            self._worker = self._stack.enter_context(ClientWorker(self._log))
        return self._worker

    def run(self, argv: Sequence[str], log: Path, limit_s: float) -> int:
        """Run one benchmark; returns its exit code.

        Raises:
            Interrupted: Ctrl-C.
            BenchError: no exit code: the process died, or the limit was reached.
        """
        try:
            return self.start().run(argv, log, limit_s)
        except BenchError:
            self._drop()
            raise

    def _drop(self) -> None:
        self._worker = None
        self._stack.close()


class Sweep:
    """One run of a sweep. ``rows`` are as far as it got, in the plan's order."""

    def __init__(
        self,
        plan: Plan,
        names: Sequence[str],
        directory: Path,
        *,
        limit_s: float,
        on_row: Callable[[Summary], None],
        progress: Progress,
    ) -> None:
        self.plan, self.directory, self.limit_s = plan, directory, limit_s
        self.names = dict(zip(plan.points, names, strict=True))
        self.rows = {point: open_row(point) for point in plan.points}
        self._on_row, self._progress = on_row, progress

    def summary(self) -> Summary:
        """The sweep so far."""
        return Summary(self.plan.model, self.plan.slo, tuple(self.rows.values()))

    def take_earlier(self) -> int:
        """Take the results that an earlier run left; returns how many."""
        taken = 0
        for point, name in self.names.items():
            file = f"{name}.json"
            if is_complete(self.directory / file):
                try:
                    row = done_row(self.rows[point], self.directory, file, self.plan.slo)
                except ResultError:  # damaged: measured again
                    continue
                self.rows[point] = row
                taken += 1
        return taken

    def run(self, start: Start) -> None:
        """Run what is open. ``start`` makes the context manager of a server.

        Raises:
            Interrupted: Ctrl-C; rows that were done stay done.
        """
        with Client(self.directory / LOGS / WORKER_LOG) as client:
            groups = itertools.groupby(self.plan.points, key=lambda point: point.server_flags)
            for number, (flags, group) in enumerate(groups, 1):
                todo = [point for point in group if self.rows[point].status == "open"]
                log = self.directory / LOGS / f"server-{number:02d}.log"
                while todo:
                    todo = self._run_group(client, start, flags, log, todo)

    def _run_group(
        self,
        client: Client,
        start: Start,
        flags: Sequence[str],
        log: Path,
        todo: Sequence[Point],
    ) -> list[Point]:
        """Run points against one server; returns those that need another, as this one died."""
        left = list(todo)
        try:
            client.start()
            self._progress.starting(label(todo[0].server), log)
            with start(flags, log) as server:
                while left:
                    row = self._run_point(client, server, left.pop(0))
                    if row.status == "failed" and not server.alive():
                        break
        except ServerUnreachable as error:
            for point in left:
                self._record(point, self._failed(point, error.exit_code, str(error)))
            return []
        return left

    def _run_point(self, client: Client, server: Server, point: Point) -> Row:
        name = self.names[point]
        self._progress.running(point)
        argv = [
            *point.client_flags,
            *("--base-url", server.base_url, "--disable-tqdm", "--save-result", "--save-detailed"),
            *("--result-dir", str(self.directory), "--result-filename", f"{name}.json"),
        ]
        log = self.directory / LOGS / f"{name}.log"
        try:
            code = client.run(argv, log, self.limit_s)
            message = last_words(log) if code else ""
        except Interrupted:
            raise
        except BenchError as error:
            code, message = error.exit_code, str(error)
        row = self._done(point) if code == 0 else self._failed(point, code, message)
        self._record(point, row)
        return row

    def _done(self, point: Point) -> Row:
        file = f"{self.names[point]}.json"
        try:
            row = done_row(self.rows[point], self.directory, file, self.plan.slo)
        except ResultError as error:
            return self._failed(point, error.exit_code, str(error))
        (self.directory / f"{self.names[point]}.partial.json").unlink(missing_ok=True)
        return row

    def _failed(self, point: Point, code: int, message: str) -> Row:
        """A result that a failed run left is not taken for one the next time."""
        result = self.directory / f"{self.names[point]}.json"
        if result.is_file():
            result.replace(result.with_suffix(".failed.json"))
        return replace(
            self.rows[point], status="failed", exit_code=code, message=message[:MESSAGE_LENGTH]
        )

    def _record(self, point: Point, row: Row) -> None:
        self.rows[point] = row
        wall_s = wall_seconds(self.directory / row.file) if row.file else None
        self._progress.ended(row, wall_s)
        self._on_row(self.summary())


def wall_seconds(path: Path) -> float | None:
    """Real time that the benchmark took, without the client's start."""
    wall = load(path).block.get("wall")
    value = wall.get("duration_s") if isinstance(wall, dict) else None
    return float(value) if isinstance(value, (int, float)) else None


def last_words(log: Path) -> str:
    """The error that a run ended with; its last line where it did not tell one of ours."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return f"no output; {log} cannot be read."
    starts = [i for i, line in enumerate(lines) if line.startswith("sendnn-bench: ")]
    if starts:
        return "\n".join(lines[starts[-1] :]).removeprefix("sendnn-bench: ").strip()
    return next((line.strip() for line in reversed(lines) if line.strip()), "no output.")


@contextmanager
def started_server(model: str, flags: Sequence[str], log: Path) -> Iterator[Server]:
    """A simulated server of the sweep's own.

    Raises:
        ServerUnreachable: it ended, or did not come up in time.
    """
    with own_server.starting(model, flags, log) as server:
        own_server.wait_until_up(server)
        yield Server(server.base_url, lambda: server.process.poll() is None)


@contextmanager
def given_server(base_url: str) -> Iterator[Server]:
    """A server that runs already, and stays."""
    yield Server(base_url, lambda: True)
