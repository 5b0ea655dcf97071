"""Signals: at once outside training, after the step inside it."""

import os
import signal

import pytest

from ptrun.training import stopping
from ptrun.training.stopping import Stopped
from tests.clock import own_clock


@pytest.fixture(autouse=True)
def handlers():
    before = {number: signal.getsignal(number) for number in stopping.SIGNALS}
    for number in stopping.SIGNALS:  # whatever the shell that started the tests ignores
        signal.signal(number, signal.SIG_DFL)
    stopping.install()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number):
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", stopping.SIGNALS, ids=str)
def test_outside_training_a_signal_ends_at_once(number):
    with pytest.raises(Stopped) as caught:
        send(number)
    assert caught.value.number == number and not isinstance(caught.value, Exception)
    assert str(caught.value).endswith("; type the same command again")


@pytest.mark.parametrize("number", stopping.SIGNALS, ids=str)
def test_in_training_the_first_waits_and_the_second_does_not(number, capsys):
    with pytest.raises(Stopped), stopping.training():
        assert stopping.received() is None
        send(number)
        assert stopping.received() == number
        send(number)
    assert stopping.received() is None
    assert "saving at the next step" in capsys.readouterr().err


def test_another_signal_soon_after_the_first_is_the_same_stop(monkeypatch):
    now = 100.0
    own_clock(monkeypatch, stopping, monotonic=lambda: now)
    with pytest.raises(Stopped), stopping.training():
        send(signal.SIGUSR1)
        now += 0.9
        send(signal.SIGTERM)
        assert stopping.received() == signal.SIGUSR1
        now += 0.2
        send(signal.SIGTERM)
    assert stopping.received() is None


def test_an_ignored_signal_stays_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stopping.install()
    send(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_training_in_training_waits_for_the_outer_one():
    with stopping.training():
        with stopping.training():
            send(signal.SIGUSR1)
        assert stopping.received() == signal.SIGUSR1
    assert str(Stopped(signal.SIGINT, 7)).startswith("stopped by SIGINT, saved at step 7; ")


class Fails:
    """A library that cannot clean up after an exception."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        raise AttributeError("it was not done yet")


def test_an_error_of_the_code_that_a_signal_interrupted_is_the_stop():
    with pytest.raises(Stopped) as caught, stopping.heard(), Fails():
        send(signal.SIGTERM)
    assert caught.value.number == signal.SIGTERM
    with pytest.raises(AttributeError), stopping.heard(), Fails():
        pass


def test_at_the_end_a_signal_ends_the_process_without_a_word():
    stopping.uninstall()
    assert {signal.getsignal(number) for number in stopping.SIGNALS} == {signal.SIG_DFL}
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stopping.uninstall()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
