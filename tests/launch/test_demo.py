"""The demo's commands and its reaction to a part that fails; the real one runs as `make demo`."""

import json

import pytest

from sendnn_bench import demo, own_server
from sendnn_bench.errors import AllRequestsFailed, ResultError

URL = "http://127.0.0.1:1"


def test_a_part_is_a_command_that_a_user_could_type(tmp_path):
    text = " ".join(demo.client_words(demo.PARTS[0], URL, tmp_path, 200))
    assert text.startswith(f"--base-url {URL} --model sim-granite-8b --dataset-name random")
    assert "--num-prompts 200 --request-rate 2 --disable-tqdm --save-result --save-detailed" in text
    assert text.endswith(f"--result-dir {tmp_path} --result-filename demo-rate-2.json")


def fake_client(monkeypatch, run) -> None:
    monkeypatch.setattr(demo, "run_serve", run)


def test_a_part_says_how_many_virtual_seconds_ran(tmp_path, monkeypatch, capfd):
    (tmp_path / demo.PARTS[0].file).write_text(json.dumps({"duration": 123.44}))
    fake_client(monkeypatch, lambda words: print("report"))
    demo.run_part(demo.PARTS[0], URL, tmp_path, 5)
    out = capfd.readouterr().out
    assert "5 requests, open loop" in out
    assert out.index("report\n") < out.index("123.4 virtual seconds ran in")


def test_a_part_that_fails_ends_the_demo(tmp_path, monkeypatch):
    def fail(words):
        raise AllRequestsFailed("all 5 requests failed.")

    fake_client(monkeypatch, fail)
    with pytest.raises(AllRequestsFailed):
        demo.run_part(demo.PARTS[1], URL, tmp_path, 5)


def test_a_part_without_a_result_is_an_error(tmp_path, monkeypatch):
    fake_client(monkeypatch, lambda words: None)
    with pytest.raises(ResultError, match="does not exist"):
        demo.run_part(demo.PARTS[0], URL, tmp_path, 5)


def test_progress_is_shown_every_few_seconds_only(capsys):
    on_wait = own_server.progress(print)
    for waited_s in (0.0, 1.0, 5.1, 5.3, 9.9, 10.2):
        on_wait(waited_s)
    assert [line.split(" s ")[0][-2:] for line in capsys.readouterr().out.splitlines()] == [
        " 5",
        "10",
    ]
