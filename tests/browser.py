"""Headless Chromium over its debugging pipe (DevTools protocol), for tests of the HTML pages. Needs no driver.

The pipe carries JSON messages that end in a NUL byte: descriptor 3 to the browser, 4 from it.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome")
TIMEOUT_S = 90.0  # a busy machine is slow, a dead browser is noticed at once
# the descriptors move out of the way before they take their places: one of them may be 3 or 4 already
PLACE_PIPE = """
import os, sys, fcntl
source, sink = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3])
os.dup2(source, 3), os.dup2(sink, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def chromium() -> str | None:
    """The browser's path, or None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser with one page. Use as a context manager."""

    def __enter__(self) -> Self:
        self._profile = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        (from_us, to_browser), (from_browser, to_us) = os.pipe(), os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", PLACE_PIPE, str(from_us), str(to_us), chromium() or "chromium",
             "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--no-first-run", "--disable-background-networking", "--disable-component-update",
             f"--user-data-dir={self._profile.name}", "--remote-debugging-pipe", "about:blank"],
            pass_fds=(from_us, to_us), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(from_us)
        os.close(to_us)
        self._out, self._in, self._rest, self._last = to_browser, from_browser, b"", 0
        self.events: list[dict] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._out)  # the browser ends when its pipe does
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        self._profile.cleanup()

    _session: str | None = None

    def call(self, method: str, **parameters: Any) -> dict:
        """One command of the protocol; RuntimeError with the browser's own words when it fails."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def _read(self) -> dict:
        end = time.monotonic() + TIMEOUT_S
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            chunk = os.read(self._in, 1 << 20) if ready else b""
            if not chunk:
                raise RuntimeError("the browser does not answer")
            self._rest += chunk
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def open(self, path: Path, *, width: int = 1280, height: int = 800, dark: bool = False, fragment: str = "") -> None:
        """Show a local page and wait until it is loaded. Events of earlier pages are forgotten."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._navigate("about:blank")  # another fragment of the page that is open would load nothing
        self._navigate(Path(path).resolve().as_uri() + fragment)

    def _navigate(self, url: str) -> None:
        self.events.clear()
        self.call("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"]["exception"].get("description", "script failed"))
        return done["result"].get("value")

    def press(self, key: str, text: str = "") -> None:
        """One key, as from the keyboard: "Tab", "Enter", "Escape", or a letter with its text."""
        text = text or {"Enter": "\r"}.get(key, "")
        code = {"Tab": 9, "Enter": 13, "Escape": 27}.get(key, 0)
        event = {"key": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", **event, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """A PNG of the window, or of the whole page."""
        image = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(image["data"]))

    @property
    def requests(self) -> list[str]:
        """Addresses that the page asked for (data: addresses are in the page)."""
        sent = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [e["params"]["request"]["url"] for e in sent if not e["params"]["request"]["url"].startswith("data:")]

    @property
    def errors(self) -> list[str]:
        """What the page complained about in its console."""
        found = []
        for event in self.events:
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(event["params"]["exceptionDetails"]["text"])
            if event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] in ("error", "warning"):
                found.append(event["params"]["entry"]["text"])
            if event.get("method") == "Runtime.consoleAPICalled" and event["params"]["type"] in ("error", "warning"):
                found.append(str(event["params"]["args"]))
        return found
