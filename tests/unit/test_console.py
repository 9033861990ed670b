"""How a command ends: its exit code, and what standard error says."""

from __future__ import annotations

import signal
import time

import pytest

from pipeline.cli.console import run_command


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_command_says_so_and_what_to_do_and_closes_what_it_has_open(number, code, request, capsys):
    def command() -> int:
        try:
            signal.raise_signal(number)
            time.sleep(60)
        finally:
            closed.append(True)
        return 0

    closed: list[bool] = []
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}[number]
    # In the background of a shell, SIGINT is ignored.
    before = signal.signal(number, usual)
    request.addfinalizer(lambda: signal.signal(number, before))
    assert run_command(command, "Run it again.") == code
    assert closed
    assert capsys.readouterr().err == "chatmill: stopped. Run it again.\n"
    assert signal.getsignal(number) == usual
