"""Chromium without a window, driven over its pipe: the commands of its DevTools protocol."""

import itertools
import json
import os
import shutil
import subprocess

import pytest

CODES = {"Enter": 13, "Escape": 27, "ArrowDown": 40}


class Browser:
    """A browser with one page; `faults` are errors of its scripts and what its policy refused."""

    def __init__(self, folder):
        program = shutil.which("chromium") or pytest.skip("browser: chromium is not installed")
        (answers, answering), (reading, commands) = os.pipe(), os.pipe()
        line = ["bash", "-c", f'exec "$0" "$@" 3<&{reading} 4>&{answering}', program, "--headless"]
        line += ["--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        self.process = subprocess.Popen(
            [*line, f"--user-data-dir={folder / 'browser'}"], pass_fds=(reading, answering),
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(reading), os.close(answering)
        self.commands, self.answers = os.fdopen(commands, "wb", 0), os.fdopen(answers, "rb")
        self.numbers, self.session, self.faults = itertools.count(1), {}, []
        page = self.command("Target.createTarget", url="about:blank")["targetId"]
        told = self.command("Target.attachToTarget", targetId=page, flatten=True)
        self.session = {"sessionId": told["sessionId"]}
        for domain in ("Page", "Runtime", "Log"):
            self.command(f"{domain}.enable")

    def command(self, method, **params):
        """Return what the browser answers to a command."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": params, **self.session}
        self.commands.write(json.dumps(message).encode() + b"\0")
        while True:
            told = json.loads(b"".join(iter(lambda: self.answers.read(1), b"\0")))
            if told.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
                self.faults.append(told["params"])
            if told.get("id") == number:
                return told["result"]

    def value(self, script):
        """Return the value of an expression, awaited."""
        told = self.command(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def until(self, condition):
        """Wait until an expression is true."""
        again = f"new Promise(done => {{ const look = () => {condition} ? done() : "
        self.value(again + "setTimeout(look, 20); look(); })")

    def open(self, address, *, width=1200):
        """Open a page in a window of a width, and wait for its runs or its request for a key."""
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        self.command("Emulation.setDeviceMetricsOverride", **size)
        self.command("Page.navigate", url=address)
        self.until("document.querySelector('#room:not([hidden]), #lock:not([hidden])')")

    def key(self, key):
        """Press a key."""
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ({"type": "keyDown", **text}, {"type": "keyUp"}):
            code = {"key": key, "code": key, "windowsVirtualKeyCode": CODES[key]}
            self.command("Input.dispatchKeyEvent", **kind, **code)

    def type(self, *texts):
        """Type texts into the boxes of a run and press Enter, with Ctrl in one of several lines."""
        for place, text in enumerate(texts):
            self.value(f"boxes()[{place}].value = '', boxes()[{place}].focus()")
            self.command("Input.insertText", text=text)
        self.value("boxes()[0].focus()")
        self.key("Enter")

    def shown(self):
        """Return the text of the last answer, or what is wrong, when there is one."""
        self.until("!stop")
        return self.value("by('fault').textContent || run.log.lastChild.lastChild.innerText")

    def close(self):
        """End the browser."""
        self.process.terminate()
        self.process.wait()
        self.commands.close(), self.answers.close()
