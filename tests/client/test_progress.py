"""The progress bar of a simulated run."""

import io
import sys

from tqdm.asyncio import tqdm

from sendnn_bench.bridge.progress import bar_class, told


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_is_told():
    assert told(42.0, 10.0) == "42.0 virtual s, 4.2 virtual s per s"
    assert told(0.0, 0.0) == "0.0 virtual s"


def test_a_terminal_sees_virtual_time(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with bar_class(lambda: 12.5)(total=2, file=screen, mininterval=0) as bar:
        bar.update(1)
        bar.update(1)
    assert "2/2" in screen.getvalue()
    assert "12.5 virtual s" in screen.getvalue()


def test_a_log_gets_vllm_s_own_bar(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert bar_class(lambda: 12.5) is tqdm
