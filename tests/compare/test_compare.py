"""`sendnn-bench compare`, on results written by hand."""

from __future__ import annotations

import copy
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sendnn_bench.cli import app
from sendnn_bench.errors import ResultError, UsageError
from sendnn_bench.metrics import METRICS, Show
from sendnn_bench.report.compare import Options, Row, compare
from sendnn_bench.report.compare_command import run_compare
from sendnn_bench.report.compare_samples import MEASURES
from sendnn_bench.report.compare_text import print_table
from sendnn_bench.results import Result
from sendnn_bench.save import stat_key

BASE: dict[str, Any] = {
    "date": "20260101-000000",
    "model_id": "tiny",
    "num_prompts": 4,
    "request_rate": 2.0,
    "burstiness": 1.0,
    "max_concurrency": None,
    "duration": 10.0,
    "completed": 4,
    "failed": 0,
    "request_throughput": 0.4,
    "mean_ttft_ms": 250.0,
    "spyre_mean_queued_time_ms": 25.0,
    "input_lens": [10, 20, 30, 40],
    "output_lens": [3, 3, 3, 1],
    "start_times": [0.0, 0.5, 1.0, 1.5],
    "ttfts": [0.1, 0.2, 0.3, 0.4],
    "itls": [[0.05, 0.05], [0.05, 0.07], [0.06, 0.06], []],
    "errors": ["", "", "", ""],
    "spyre_queued_time_s": [0.01, 0.02, 0.03, 0.04],
    "sendnn": {
        "mode": "virtual",
        "command": ["sendnn-bench", "serve", "--dataset-name", "random", "--seed", "1"],
        "cost_model": {"kind": "constant", "decode_ms": 50.0},
        "versions": {"vllm": "0.28.0"},
    },
}
DETAILED = ("input_lens", "output_lens", "start_times", "ttfts", "itls", "errors")


def changed(**changes: Any) -> dict[str, Any]:
    data = copy.deepcopy(BASE)
    for key, value in changes.items():
        data["sendnn"] |= value if key == "sendnn" else {}
        data[key] = data["sendnn"] if key == "sendnn" else value
    return data


def result(data: dict[str, Any], name: str = "a.json") -> Result:
    return Result(Path(name), data)


def row(rows: tuple[Row, ...], key: str, statistic: str = "") -> Row:
    return next(r for r in rows if (r.key, r.statistic) == (key, statistic))


@pytest.fixture
def files(tmp_path: Path):
    def write(*datas: dict[str, Any]) -> list[Path]:
        paths = [tmp_path / f"{chr(97 + index)}.json" for index in range(len(datas))]
        for path, data in zip(paths, datas, strict=True):
            path.write_text(json.dumps(data))
        return paths

    return write


def test_numbers_by_hand() -> None:
    other = changed(
        duration=11.0, ttfts=[0.2, 0.3, 0.4, 0.5], spyre_queued_time_s=[0.02, 0.03, 0.04, 0.05]
    )
    found = compare(result(BASE), result(other), Options())
    ttft = row(found.rows, "ttft", "mean")
    assert (ttft.base, ttft.other) == pytest.approx((250.0, 350.0))
    assert ttft.relative == pytest.approx(0.4)
    assert ttft.interval == pytest.approx((100.0, 100.0))
    assert row(found.rows, "ttft", "median").base == pytest.approx(250.0)
    assert row(found.rows, "ttft", "p90").base == pytest.approx(370.0)
    # the request with one token has no time per output token
    assert row(found.rows, "tpot", "mean").base == pytest.approx((50 + 60 + 60) / 3)
    assert row(found.rows, "itl", "mean").base == pytest.approx(340 / 6)
    assert row(found.rows, "e2el", "p99").difference == pytest.approx(100.0)
    assert row(found.rows, "spyre_queued_time", "mean").difference == pytest.approx(10.0)
    assert row(found.rows, "duration").relative == pytest.approx(0.1)
    assert found.paired
    assert found.workload == ()


def test_failed_requests_give_no_samples() -> None:
    other = changed(errors=["", "", "", "reset"], failed=1, ttfts=[0.1, 0.2, 0.3, 99.0])
    found = compare(result(BASE), result(other, "b.json"), Options())
    assert row(found.rows, "ttft", "mean").other == pytest.approx(200.0)
    assert found.workload == ("b.json: 1 requests failed",)


@pytest.mark.parametrize("form", ["table", "md", "json"])
def test_identical_runs_are_all_zeros(files, capsys, form: str) -> None:
    assert run_compare(files(BASE, BASE), Options(tolerance=0.0), form, fail_over=True) == 0
    text = capsys.readouterr().out
    assert "NOT COMPARABLE" not in text
    if form == "json":
        (found,) = json.loads(text)["comparisons"]
        assert {r["difference"] for r in found["rows"]} == {0.0}
        assert {r["relative"] for r in found["rows"]} == {0.0}
        assert {tuple(r["interval"]) for r in found["rows"] if r["interval"]} == {(0.0, 0.0)}
        assert found["comparable"]


def test_tolerance_and_fail_over(files) -> None:
    paths = files(BASE, changed(duration=10.5))
    assert run_compare(paths, Options(tolerance=0.04), fail_over=True) == 1
    assert run_compare(paths, Options(tolerance=0.06), fail_over=True) == 0
    assert run_compare(paths, Options(tolerance=0.04)) == 0


def test_a_base_of_zero_has_no_relative_difference() -> None:
    assert Row("k", "t", "", "", 0.0, 0.0).relative == 0.0
    assert not Row("k", "t", "", "", 0.0, 0.0).beyond(0.0)
    assert Row("k", "t", "", "", 0.0, 1.0).relative is None
    assert Row("k", "t", "", "", 0.0, 1.0).beyond(9.0)
    assert Row("k", "t", "", "", -2.0, -1.0).relative == 0.5
    assert not Row("k", "t", "", "", 2.0, None).beyond(0.0)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"request_rate": 3.0}, "request rate: 2.0 and 3.0"),
        ({"max_concurrency": 8}, "max concurrency: not set and 8"),
        ({"model_id": "other"}, "model: tiny and other"),
        ({"input_lens": [10, 20, 30, 41]}, "prompt lengths: 1 of 4"),
        ({"sendnn": {"command": ["x", "--dataset-name=random", "--seed=2"]}}, "--seed: 1 and 2"),
        ({"sendnn": {"command": ["x", "--seed", "1"]}}, "--dataset-name: random and not set"),
        ({"sendnn": {"partial": True}}, "did not reach its end"),
    ],
)
def test_other_loads_are_not_comparable(changes: dict[str, Any], named: str) -> None:
    found = compare(result(BASE), result(changed(**changes)), Options())
    assert len(found.workload) == 1
    assert named in found.workload[0]
    out = io.StringIO()
    print_table([found], 0.05, out)
    assert "NOT COMPARABLE" in out.getvalue()
    assert named in out.getvalue()


def test_where_files_go_and_who_serves_leaves_the_load_as_it_is() -> None:
    command = [*BASE["sendnn"]["command"], "--result-filename", "b.json", "--port", "81", "-v"]
    other = changed(sendnn={"command": command, "mode": "real", "cost_model": None})
    found = compare(result(BASE), result(other), Options())
    assert found.workload == ()
    assert "mode: virtual and real" in found.setup
    assert any(line.startswith("cost_model") for line in found.setup)


def test_runs_without_details_compare_what_their_files_tell() -> None:
    short = {k: v for k, v in BASE.items() if k not in DETAILED and k != "spyre_queued_time_s"}
    found = compare(result(short), result(changed(mean_ttft_ms=260.0)), Options())
    ttft = row(found.rows, "ttft", "mean")
    assert (ttft.base, ttft.other, ttft.interval) == (250.0, 260.0, None)
    assert row(found.rows, "spyre_queued_time", "mean").base == 25.0
    assert not any(r.key == "itl" for r in found.rows)
    out = io.StringIO()
    print_table([found], 0.05, out)
    assert "--save-detailed" in out.getvalue()


def test_keys_of_aggregates_are_those_that_results_have() -> None:
    known = {
        stat_key(statistic, metric)
        for metric in METRICS
        if metric.show is Show.SECTION
        for statistic in ("mean", "p99.9")
    }
    found = {m.stat_key(statistic) for m in MEASURES for statistic in ("mean", "p99.9")}
    vllm = {key for key in found if not key.startswith("spyre_")}
    assert found - vllm == known
    assert "mean_ttft_ms" in vllm


def test_plain_where_it_is_no_terminal_and_colour_where_it_is() -> None:
    found = compare(result(BASE), result(changed(duration=20.0), "[b].json"), Options())
    plain, colour = io.StringIO(), io.StringIO()
    print_table([found], 0.05, plain)
    print_table([found], 0.05, colour, color=True)
    assert "\x1b[" not in plain.getvalue()
    assert "\x1b[" in colour.getvalue()
    assert "B: [b].json" in plain.getvalue()
    marked = [line for line in plain.getvalue().splitlines() if line.startswith("!")]
    assert len(marked) == 1
    assert re.search(r"Benchmark duration \(s\)\s+10\s+20\s+\+10\s+\+100.00", marked[0])


def test_html_is_one_file_that_loads_nothing(files, tmp_path: Path) -> None:
    paths = files(BASE, changed(duration=20.0), BASE)
    nasty = paths[1].rename(tmp_path / "<script>alert(1)<.json")
    page = tmp_path / "page.html"
    assert run_compare([paths[0], nasty, paths[2]], Options(), output=page) == 0
    text = page.read_text(encoding="utf-8")
    own = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert "<script" not in own
    assert not re.search(r"(src|href)\s*=", own)
    assert text.count("<h2>") == 2
    assert "Queue Wait Time (ms)" in text
    assert "alert(1)</h2>" not in text


def test_form_follows_the_suffix(files, tmp_path: Path, capsys) -> None:
    paths = files(BASE, BASE)
    run_compare(paths, Options(), output=tmp_path / "c.json")
    assert json.loads((tmp_path / "c.json").read_text())["comparisons"]
    run_compare(paths, Options(), output=tmp_path / "c.md")
    assert "| --- | --- |" in (tmp_path / "c.md").read_text()
    run_compare(paths, Options(), output=tmp_path / "c.txt")
    assert (tmp_path / "c.txt").read_text().startswith("A: ")
    assert capsys.readouterr().out == ""


def test_faults_are_told(files, tmp_path: Path) -> None:
    (path,) = files(BASE)
    with pytest.raises(UsageError, match="at least two"):
        run_compare([path], Options())
    with pytest.raises(UsageError, match=r"-o FILE\.html"):
        run_compare([path, path], Options(), "html")
    with pytest.raises(ResultError, match="does not exist"):
        run_compare([path, tmp_path / "no.json"], Options())


def test_the_command(files) -> None:
    paths = [str(path) for path in files(BASE, changed(duration=20.0))]
    runner = CliRunner()
    assert runner.invoke(app, ["compare", *paths]).exit_code == 0
    failed = runner.invoke(app, ["compare", *paths, "--fail-over", "--json"])
    assert failed.exit_code == 1
    assert json.loads(failed.stdout)["tolerance"] == 0.05


def test_no_vllm_is_imported(files) -> None:
    code = (
        "import sys; from sendnn_bench.report.compare_command import run_compare, Options; "
        "from pathlib import Path; run_compare([Path(p) for p in sys.argv[1:]], Options()); "
        "sys.exit('vllm' in sys.modules or 'torch' in sys.modules)"
    )
    paths = [str(path) for path in files(BASE, BASE)]
    done = subprocess.run(
        [sys.executable, "-c", code, *paths], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
