"""A sweep's run, with a client and servers that only pretend: order, resume, failures, Ctrl-C."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from sendnn_bench.errors import BenchError, Interrupted, ServerUnreachable
from sendnn_bench.own_server import Words
from sendnn_bench.protocol import ServerInfo
from sendnn_bench.sweep import command
from sendnn_bench.sweep import run as sweep_run
from sendnn_bench.sweep.identity import Surroundings, inputs, is_complete, name_of, server_facts
from sendnn_bench.sweep.plan import Parts, Plan, command_line_parts, plan_of
from sendnn_bench.sweep.run import Server, last_words
from tests.sweep.results import detailed, write

GRID = (
    *("--vary", "request-rate=1,2,4,8", "--vary-server", "max-num-seqs=8,16"),
    *("--num-prompts", "4"),
)
RATES = ("1", "2", "4", "8")


class World:
    """Servers and the client; ``fate`` of a client's argv is an exit code, or raises."""

    def __init__(self) -> None:
        self.starts: list[tuple[str, ...]] = []
        self.stopped = 0
        self.runs: list[str] = []
        self.workers = 0
        self.alive = True
        self.fate: Callable[[str, str], int] = lambda _server, _rate: 0
        self.refused: set[str] = set()
        self._size = ""

    @contextmanager
    def server(self, _model: str, flags: Sequence[str], _log: Path) -> Iterator[Server]:
        self.starts.append(tuple(flags))
        self._size = flags[-1]
        if self._size in self.refused:
            raise ServerUnreachable("the server ended with exit code 1. The end of its log: no")
        self.alive = True
        try:
            yield Server("http://127.0.0.1:1", lambda: self.alive)
        finally:
            self.stopped += 1

    def worker(self, _log: Path) -> Worker:
        self.workers += 1
        return Worker(self)

    def run(self, argv: Sequence[str], log: Path) -> int:
        rate = argv[argv.index("--request-rate") + 1]
        self.runs.append(f"{self._size}@{rate}")
        log.parent.mkdir(parents=True, exist_ok=True)
        code = self.fate(self._size, rate)
        log.write_text(f"table\nsendnn-bench: it failed for [{rate}]\n" if code else "table\n")
        name = Path(argv[argv.index("--result-dir") + 1]) / argv[-1]
        ttft_s = 0.1 if rate != "8" else 3.0
        data = detailed(ttfts_s=[ttft_s] * 4, duration_s=4 / float(rate))
        if code in (0, 4):
            write(name, data | {"completed": 4 * (code == 0)})
        return code


class Worker:
    def __init__(self, world: World) -> None:
        self._world = world

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, argv: Sequence[str], log: Path, limit_s: float) -> int:
        assert limit_s == 3600
        return self._world.run(argv, log)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World()
    monkeypatch.setattr(sweep_run, "ClientWorker", found.worker)
    monkeypatch.setattr(command, "started_server", found.server)
    return found


def sweep(directory: Path, *more: str) -> int:
    return command.run_sweep([*GRID, "--result-dir", str(directory), *more])


def rows(directory: Path) -> list[dict]:
    return json.loads((directory / "sweep.json").read_text())["rows"]


def test_one_start_for_each_server_and_all_results(world: World, tmp_path: Path, capsys) -> None:
    assert sweep(tmp_path, "--goodput", "ttft:500") == 0
    assert world.starts == [("--max-num-seqs", "8"), ("--max-num-seqs", "16")]
    assert world.stopped == 2
    assert world.workers == 1
    assert world.runs == [f"{size}@{rate}" for size in ("8", "16") for rate in RATES]
    found = rows(tmp_path)
    assert {row["status"] for row in found} == {"done"}
    assert all((tmp_path / row["file"]).is_file() for row in found)
    assert found[3]["numbers"]["good_share"] == 0.0
    out, err = capsys.readouterr()
    assert "[8/8] max-num-seqs=16 request-rate=8" in err
    assert "4.0 s in 2.0 s of wall time (2.0x)" in err
    assert "Best goodput with max-num-seqs=16: 4.00 req/s at request-rate=4 (100.0 %" in out
    assert "knee" in out
    csv = (tmp_path / "sweep.csv").read_text().splitlines()
    assert csv[0].startswith("max-num-seqs,request-rate,status,exit_code,duration,")
    assert len(csv) == 9


def test_the_same_sweep_gives_the_same_bytes(world: World, tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    assert sweep(first) == sweep(second) == 0
    for name in ("sweep.json", "sweep.csv", "sweep.html"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_what_is_measured_is_not_measured_again(world: World, tmp_path: Path, capsys) -> None:
    assert sweep(tmp_path) == 0
    before = (tmp_path / "sweep.json").read_bytes()
    world.runs.clear()
    world.starts.clear()
    assert sweep(tmp_path) == 0
    assert (world.runs, world.starts) == ([], [])
    assert "8 of 8 points are in" in capsys.readouterr().err
    assert (tmp_path / "sweep.json").read_bytes() == before
    assert sweep(tmp_path, "--fresh") == 0
    assert len(world.runs) == 8


def test_only_what_is_new_is_measured(world: World, tmp_path: Path) -> None:
    assert sweep(tmp_path) == 0
    broken = tmp_path / rows(tmp_path)[1]["file"]
    broken.write_text(broken.read_text()[:50])
    world.runs.clear()
    wider = [word.replace("2,4,8", "2,4,8,9").replace("8,16", "8") for word in GRID]
    assert command.run_sweep([*wider, "--result-dir", str(tmp_path)]) == 0
    assert world.runs == ["8@2", "8@9"]


def test_a_point_that_fails_is_recorded_and_the_rest_goes_on(
    world: World, tmp_path: Path, capsys
) -> None:
    world.fate = lambda size, rate: 4 if (size, rate) == ("8", "2") else 0
    assert sweep(tmp_path) == 4
    assert len(world.runs) == 8
    failed = rows(tmp_path)[1]
    assert (failed["status"], failed["exit_code"]) == ("failed", 4)
    assert failed["message"] == "it failed for [2]"
    assert "failed (4): it failed for [2]" in capsys.readouterr().out
    assert list(tmp_path.glob("*.failed.json"))
    world.fate = lambda _size, _rate: 0
    world.runs.clear()
    assert sweep(tmp_path) == 0
    assert world.runs == ["8@2"]


def test_a_server_that_does_not_start_costs_its_points(world: World, tmp_path: Path) -> None:
    world.refused = {"8"}
    assert sweep(tmp_path) == 3
    assert [row["status"] for row in rows(tmp_path)] == ["failed"] * 4 + ["done"] * 4
    assert "The end of its log" in rows(tmp_path)[0]["message"]


def test_a_server_that_dies_is_started_again(world: World, tmp_path: Path) -> None:
    def fate(size: str, rate: str) -> int:
        world.alive = (size, rate) != ("8", "2")
        return 0 if world.alive else 3

    world.fate = fate
    assert sweep(tmp_path) == 3
    assert world.starts == [("--max-num-seqs", size) for size in ("8", "8", "16")]
    assert [row["status"] for row in rows(tmp_path)].count("done") == 7


def test_a_client_that_dies_is_started_again(world: World, tmp_path: Path) -> None:
    def fate(_size: str, rate: str) -> int:
        if rate == "4":
            raise BenchError("a run did not end within 3600 s and was stopped.")
        return 0

    world.fate = fate
    assert sweep(tmp_path) == 1
    assert world.workers == 3
    assert rows(tmp_path)[2]["message"] == "a run did not end within 3600 s and was stopped."


@pytest.mark.parametrize("kind", [Interrupted, KeyboardInterrupt])
def test_ctrl_c_keeps_what_was_measured(world: World, tmp_path: Path, kind) -> None:
    def fate(_size: str, rate: str) -> int:
        if rate == "4":
            raise kind("interrupted")
        return 0

    world.fate = fate
    with pytest.raises(Interrupted, match="2 of 8 points are done"):
        sweep(tmp_path)
    assert world.stopped == 1
    assert [row["status"] for row in rows(tmp_path)] == ["done"] * 2 + ["open"] * 6
    assert (tmp_path / "sweep.html").is_file()
    world.fate = lambda _size, _rate: 0
    world.runs.clear()
    assert sweep(tmp_path) == 0
    assert world.runs[0] == "8@4"


def test_report_only_reads_the_results_again(world: World, tmp_path: Path, capsys) -> None:
    assert sweep(tmp_path) == 0
    before = (tmp_path / "sweep.html").read_bytes()
    (tmp_path / "sweep.html").unlink()
    assert command.run_sweep(["--report-only", str(tmp_path)]) == 0
    assert (tmp_path / "sweep.html").read_bytes() == before
    capsys.readouterr()
    assert command.run_sweep(["--report-only", str(tmp_path), "--goodput", "ttft:500"]) == 0
    assert "Best goodput" in capsys.readouterr().out
    assert json.loads((tmp_path / "sweep.json").read_text())["slo"] == {"ttft": 500}


def test_ctrl_c_is_heard_where_the_run_does_not_end(world: World, tmp_path: Path) -> None:
    def fate(_size: str, _rate: str) -> int:
        raise Interrupted("interrupted; a run did not end within 60 s and was stopped.")

    world.fate = fate
    with pytest.raises(Interrupted, match="0 of 8 points are done"):
        sweep(tmp_path)


def test_where_a_running_server_is_does_not_matter() -> None:
    def facts(port: str, size: str) -> dict:
        return server_facts(
            ServerInfo(
                protocol=1,
                clock="virtual",
                target="spyre",
                model="m",
                cost_model={},
                versions={},
                settings={"SENDNN_INFERENCE_SIM_METRICS_FILE": port, "A": "1"},
                flags=["m", "--port", port, "--max-num-seqs", size],
            )
        )

    assert facts("1", "8") == facts("2", "8") != facts("1", "16")


def plan(*client: str) -> Plan:
    return plan_of(Parts(), command_line_parts(Words((), client), [["seed=0"]], [], []))


def test_the_name_of_a_point_changes_with_what_shapes_it(tmp_path: Path) -> None:
    data = tmp_path / "prompts.jsonl"
    data.write_text("one")
    (point,) = plan("--dataset-path", str(data)).points
    around = Surroundings({"vllm": "1"}, {})
    names = {name_of(point, "m", around)}
    data.write_text("two")
    names.add(name_of(point, "m", around))
    names.add(name_of(point, "other", around))
    names.add(name_of(point, "m", Surroundings({"vllm": "2"}, {})))
    names.add(name_of(point, "m", Surroundings({"vllm": "1"}, {"SENDNN_INFERENCE_X": "1"})))
    names.add(name_of(point, "m", Surroundings({"vllm": "1"}, {}, {"url": "http://a"})))
    assert len(names) == 6
    assert all(name.startswith("seed=0-") for name in names)
    assert set(inputs(point.client_flags)) == {str(data)}


def test_names_are_names_of_files() -> None:
    (point,) = plan_of(
        Parts(), command_line_parts(Words((), ()), [[f"header=../a b/{'x' * 300}"]], [], [])
    ).points
    name = name_of(point, "m", Surroundings({}, {}))
    assert "/" not in name
    assert len(name) < 120


@pytest.mark.parametrize(
    "changes", [{"sendnn": {"partial": True}}, {"completed": 0}, {"start_times": None}]
)
def test_results_that_are_not_taken(tmp_path: Path, changes: dict) -> None:
    path = write(tmp_path / "r.json", detailed(ttfts_s=[0.1]))
    assert is_complete(path)
    write(path, detailed(ttfts_s=[0.1]) | changes)
    assert not is_complete(path)


def test_last_words_of_a_run(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("usage: x\nerror: unrecognized arguments: --no\n\n")
    assert last_words(log) == "error: unrecognized arguments: --no"
    log.write_text("a\nsendnn-bench: all 2 requests failed:\n  2 x reset\n")
    assert last_words(log) == "all 2 requests failed:\n  2 x reset"
    assert "cannot be read" in last_words(tmp_path / "none.log")
