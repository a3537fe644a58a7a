"""A headless Chromium, driven over its debugging pipe."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE = 60.0
# Chromium looks for its pipe at descriptors 3 and 4; move ours there by way of free numbers, then become Chromium.
LAUNCH = """
import fcntl, os, sys
aside = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for source, target in zip(aside, (3, 4)):
    os.dup2(source, target)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One Chromium process; every `Page` is a tab in it."""

    def __init__(self, profile: Path) -> None:
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()
        flags = (
            "--headless --no-sandbox --disable-gpu --disable-background-networking --no-first-run --hide-scrollbars "
            f"--remote-debugging-pipe --user-data-dir={profile}"
        ).split()
        ends = to_browser, from_browser
        launch = [sys.executable, "-c", LAUNCH, *map(str, ends), str(CHROMIUM), *flags]
        self._process = subprocess.Popen(launch, pass_fds=ends, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self._unread, self._count = b"", 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Send a command of the DevTools protocol and wait for its answer; events go to `events`."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "Chromium does not answer"
            received = os.read(self._from, 1 << 20)
            assert received, "Chromium has ended"
            self._unread += received
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)

    def close(self) -> None:
        """End the process and give its descriptors back."""
        os.close(self._to)
        os.close(self._from)
        self._process.terminate()
        self._process.wait(PATIENCE)


class Page:
    """A tab that shows one file."""

    def __init__(self, browser: Browser, path: Path, *, width: int, dark: bool) -> None:
        self._browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500
        )
        self.set_dark(dark)
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait_for("document.documentElement?.dataset.charts !== undefined")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command to this tab."""
        return self._browser.call(method, self._session, **params)

    def set_dark(self, dark: bool) -> None:
        """Tell the page which colour scheme the reader prefers; only the tab in front notices."""
        self.call("Page.bringToFront")
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def evaluate(self, script: str) -> Any:
        """Evaluate JavaScript and return its value."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        deadline = time.monotonic() + PATIENCE
        while not self.evaluate(condition):
            assert time.monotonic() < deadline, f"never true: {condition}"
            time.sleep(0.05)

    def screenshot(self, path: Path) -> None:
        """Save a picture of the whole page."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def complaints(self) -> list[str]:
        """Everything the console shows: messages, warnings, errors, uncaught exceptions."""
        return [json.dumps(event["params"]) for event in self._events(
            "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"
        )]  # fmt: skip

    def requests(self) -> list[str]:
        """Addresses the page asked for."""
        return [event["params"]["request"]["url"] for event in self._events("Network.requestWillBeSent")]

    def _events(self, *methods: str) -> list[dict[str, Any]]:
        self.evaluate("1")  # what came before has arrived
        events = self._browser.events
        return [event for event in events if event.get("sessionId") == self._session and event["method"] in methods]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The browser of this session."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture
def open_page(browser: Browser) -> Callable[..., Page]:
    """Open a file and wait until its charts are drawn."""

    def open_file(path: Path, *, width: int = 1200, dark: bool = False) -> Page:
        return Page(browser, path, width=width, dark=dark)

    return open_file
