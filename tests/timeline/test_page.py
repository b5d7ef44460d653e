"""The page as a file: data kept, text escaped, self-contained; and the command around it."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from sendnn_bench.cli import app
from sendnn_bench.errors import ResultError, UsageError
from sendnn_bench.report.timeline import timeline_of_file, write_timeline
from sendnn_bench.report.timeline.payload import column, encode
from sendnn_bench.results import load
from tests.timeline import runs

EVIL = "</script><img src=x onerror=alert(1)><b>bold"


def decode(text: str):
    """What the page's script does, in Python."""
    data = zlib.decompress(base64.b64decode(text))
    at = 4 + int.from_bytes(data[:4], "little")
    head = json.loads(data[4:at])
    columns = {}
    for told in head["columns"]:
        size = told["count"] * told["width"]
        planes = np.frombuffer(data[at : at + size], np.uint8).reshape(told["width"], -1)
        columns[told["name"]] = [
            sum(int(byte) << 8 * i for i, byte in enumerate(number)) for number in planes.T
        ]
        at += size
    assert at == len(data)
    return head, columns


def payload_of(page: str):
    return decode(re.search(r'id="data">([^<]*)<', page)[1])


@given(st.lists(st.integers(0, 2**53), max_size=30), st.lists(st.integers(0, 255), max_size=30))
def test_columns_come_back_as_they_were(large, small):
    text = encode({"a": 1}, {"large": column(large), "small": column(small)})
    head, columns = decode(text)
    assert head["a"] == 1
    assert columns == {"large": large, "small": small}


def test_a_negative_number_is_an_error():
    with pytest.raises(ValueError, match="-3"):
        column([1, -3])


def test_page_holds_every_step_of_the_result(tmp_path):
    data = runs.simulated(runs.arrivals(12, 8, gap_ms=200), failed=(3,))
    out = timeline_of_file(runs.write(tmp_path / "run.json", data), None, None)
    head, columns = payload_of(out.read_text())
    assert out.name == "run.timeline.html"
    assert len(head["requests"]) == 12
    pairs = zip(columns["segment_kind"], columns["segment_ns"], strict=True)
    decodes = [ns for kind, ns in pairs if kind == 4]
    told = [round(s * 1e9) for row in data["spyre_decode_latencies_s"] for s in row]
    assert decodes == told
    assert columns["chunk_tokens"] == [n for row in data["spyre_chunk_tokens"] for n in row]


def test_text_from_the_file_cannot_become_markup(tmp_path):
    data = runs.simulated(runs.arrivals(3, 3, gap_ms=50), failed=(1,))
    data["model_id"] = data["errors"][1] = data["date"] = EVIL
    data["spyre_request_id"] = [EVIL] * 3
    page = timeline_of_file(runs.write(tmp_path / "run.json", data), None, None).read_text()
    assert "<img" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert page.count("</script>") == 3


def test_page_is_the_same_each_time_and_asks_for_nothing(tmp_path):
    result = runs.write(tmp_path / "run.json", runs.plain(runs.arrivals(3, 3, gap_ms=50)))
    first, second = (timeline_of_file(result, tmp_path / name, "5,9") for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", first.read_text())


def test_summary_reads_without_javascript(tmp_path):
    data = runs.simulated([(0, 100, 3), (10 * runs.MS, 600, 2)])
    page = timeline_of_file(runs.write(tmp_path / "r.json", data), None, None).read_text()
    # Two chunks of 100 ms more than one prompt each: three chunks, four decode steps of 51 ms.
    assert "<th scope=row>Prefill chunk</th><td>3</td><td>0.300</td><td>100.00</td>" in page
    assert "<th scope=row>Decode step</th><td>3</td><td>0.153</td><td>51.00</td>" in page
    assert '<a href="#request-1">#1</a></th><td>443.00</td><td>392.00</td><td>141.00</td>' in page


@pytest.mark.parametrize("make", [runs.simulated, runs.upstream, runs.plain])
def test_a_page_of_64_x_64_is_small(make, tmp_path):
    data = make(runs.arrivals(64, 64, gap_ms=100), max_batch=16, jitter_ns=runs.MS)
    out = timeline_of_file(runs.write(tmp_path / "run.json", data), None, None)
    assert out.stat().st_size < 5_000_000


@pytest.mark.parametrize("make", [runs.simulated, runs.upstream, runs.plain])
def test_all_failed_and_a_single_request_make_a_sensible_page(make, tmp_path):
    failed = make(runs.arrivals(3, 3, gap_ms=50), failed=(0, 1, 2))
    page = timeline_of_file(runs.write(tmp_path / "f.json", failed), None, None).read_text()
    assert "Not one request succeeded" in page
    single = make([(0, 100, 1)])
    page = timeline_of_file(runs.write(tmp_path / "s.json", single), None, None).read_text()
    assert len(payload_of(page)[0]["requests"]) == 1


def test_times_beyond_a_day_and_just_below_a_minute_are_numbers(tmp_path):
    data = runs.plain([(0, 100, 2)])
    data["start_times"], data["ttfts"], data["itls"] = [0.0], [59.9996], [[30 * 3600.0]]
    page = timeline_of_file(runs.write(tmp_path / "r.json", data), None, None).read_text()
    assert payload_of(page)[1]["segment_ns"] == [59_999_600_000, 108_000_000_000_000]


def cut(data):
    text = json.dumps(data)
    return text[: len(text) // 2]


def summary_only(data):
    return json.dumps({key: value for key, value in data.items() if not isinstance(value, list)})


def without_rows(data):
    return json.dumps({key: [] if isinstance(v, list) else v for key, v in data.items()})


def with_columns(**columns):
    return lambda data: json.dumps({**data, **columns})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, "not complete JSON"),
        (summary_only, "has no per-request data"),
        (without_rows, "holds no requests"),
        (lambda _: "[]", "not a result object"),
        (with_columns(ttfts=[0.1]), "column 'ttfts' has 1 rows"),
        (with_columns(start_times=["x", 1, 2]), "column is damaged"),
        (with_columns(input_lens=[float("inf"), 1, 2]), "column is damaged"),
        (with_columns(spyre_arrival_ns=["soon", 1, 2]), "column is damaged"),
        (with_columns(spyre_finish_ns=[float("nan"), 1, 2]), "timestamps are damaged"),
        (with_columns(spyre_decode_start_times_s=[[], [], [0.5]]), "but 2 latencies"),
    ],
)
def test_bad_input_is_one_clear_error(damage, message, tmp_path):
    path = tmp_path / "run.json"
    path.write_text(damage(runs.simulated(runs.arrivals(3, 3, gap_ms=50))))
    with pytest.raises(ResultError, match=message):
        timeline_of_file(path, None, None)
    assert not (tmp_path / "run.timeline.html").exists()


def test_a_latency_that_is_no_number_is_unknown(tmp_path):
    data = runs.simulated(runs.arrivals(3, 3, gap_ms=50))
    data["ttfts"][1] = float("nan")
    page = timeline_of_file(runs.write(tmp_path / "run.json", data), None, None).read_text()
    requests = payload_of(page)[0]["requests"]
    assert requests[1]["ttft_ms"] is None
    assert requests[1]["e2el_ms"] is None
    assert page.count('href="#request-') == 2


def test_missing_file_directory_and_the_result_itself_as_output(tmp_path):
    result = runs.write(tmp_path / "run.json", runs.plain([(0, 100, 1)]))
    with pytest.raises(ResultError, match="does not exist"):
        timeline_of_file(tmp_path / "no.json", None, None)
    with pytest.raises(ResultError, match="cannot be written"):
        write_timeline(load(result), tmp_path)
    with pytest.raises(UsageError, match="is the result file itself"):
        write_timeline(load(result), result)


def test_command_writes_where_it_is_told_and_says_so(tmp_path):
    result = runs.write(tmp_path / "run.json", runs.plain([(0, 100, 2)]))
    out = tmp_path / "deep" / "page.html"
    answer = CliRunner().invoke(
        app, ["timeline", str(result), "-o", str(out), "--decode-thresholds", "10,20"]
    )
    assert answer.exit_code == 0, answer.output
    assert str(out) in answer.output.replace("\n", "")
    assert payload_of(out.read_text())[0]["thresholds_ms"] == [10.0, 20.0]


def test_command_does_not_import_vllm(tmp_path):
    result = runs.write(tmp_path / "run.json", runs.plain([(0, 100, 2)]))
    code = (
        "import sys; from pathlib import Path; import sendnn_bench.cli;"
        "from sendnn_bench.report.timeline import timeline_of_file;"
        "plotly_late = 'plotly' not in sys.modules;"
        f"timeline_of_file(Path({str(result)!r}), None, None);"
        "sys.exit(not plotly_late or 'vllm' in sys.modules or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
    assert (Path(tmp_path) / "run.timeline.html").exists()
