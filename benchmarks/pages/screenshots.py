"""Pictures of a page in Chromium: desktop and phone, light and dark, and whether anything is cut off.

    python benchmarks/pages/screenshots.py plan/report.html --out pictures

writes ``first.png``, what a desk shows before anything is scrolled, and of the whole page
``desktop-light.png``, ``desktop-dark.png``, ``phone-light.png``, ``phone-dark.png`` and ``paper.png``.
``docs/images/report.png`` is the first of the plan by ``freshopt plan --example gstreamer-plugins``.
It prints for each width how many screens the page has, and how wide the content is: more than the window
means that it has to be scrolled sideways. The exit code is 1 if it is, or if the page asked for anything from
elsewhere. It needs ``chromium`` on the PATH, to which it talks over a pipe in the DevTools protocol, and
Pillow; no test depends on it.
"""

import argparse
import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

DEVICES = {"desktop": (1280, 800, False), "phone": (390, 844, True)}
PAPER = {"width": 718, "height": 1047}  # of A4 at 96 pixels an inch, less margins of a centimetre
TALLEST = 16_000  # pixels that a picture may have


class Browser:
    """A Chromium at the other end of two pipes, with one page."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._number, self._rest = 0, b""
        self.asked: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send a command and return its result; what is loaded meanwhile is noted in `asked`."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if not method.startswith("Target."):
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return dict(answer["result"])

    def wait(self, event: str) -> None:
        """Wait until something has happened on the page."""
        while self._next().get("method") != event:
            pass

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            read = os.read(self._read, 1 << 16)
            if not read:
                raise RuntimeError("Chromium has ended. Is it installed completely?")
            self._rest += read
        message, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        if answer.get("method") == "Network.requestWillBeSent":
            self.asked.append(answer["params"]["request"]["url"])
        return answer


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Chromium and yield it."""
    command = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if command is None:
        raise SystemExit("There is no chromium on the PATH. Install it.")
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    with tempfile.TemporaryDirectory() as profile:
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
        ]

        def place() -> None:
            """Put the pipes where Chromium looks for them."""
            one, other = os.dup(to_read), os.dup(from_write)
            os.dup2(one, 3)
            os.dup2(other, 4)

        with subprocess.Popen(
            [command, *options, "--remote-debugging-pipe", "about:blank"],
            preexec_fn=place,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as job:
            os.close(to_read)
            os.close(from_write)
            try:
                yield Browser(to_write, from_read)
            finally:
                job.terminate()
                os.close(to_write)
                os.close(from_read)


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("page", type=Path)
    parser.add_argument("--out", type=Path, default=Path("pictures"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    address, good = given.page.resolve().as_uri(), True
    with chromium() as browser:
        for domain in ("Page", "Network"):
            browser.call(f"{domain}.enable")
        screens = {}
        for device, (width, height, mobile) in DEVICES.items():
            browser.call(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=height,
                deviceScaleFactor=2 if mobile else 1,
                mobile=mobile,
            )
            for scheme in ("light", "dark"):
                file = given.out / f"{device}-{scheme}.png"
                wide, high = picture(browser, address, scheme, width, file)
                good = good and wide <= width
                screens[device] = high / height
                print(f"{device}-{scheme}: window {width}, content {wide} pixels wide")
            if not mobile:
                first = given.out / "first.png"
                picture(browser, address, "light", width, first, most=height)
                # A page has few colours: with a palette the picture takes a third of the room.
                Image.open(first).quantize(250, Image.Quantize.MAXCOVERAGE).save(first, optimize=True)
        print("; ".join(f"{device}: {many:.1f} screens" for device, many in screens.items()))
        browser.call("Emulation.setDeviceMetricsOverride", **dict(PAPER, mobile=False, deviceScaleFactor=1))
        picture(browser, address, "light", PAPER["width"], given.out / "paper.png", media="print")
        foreign = sorted({asked for asked in browser.asked if asked != address})
    print(f"asked for from elsewhere: {', '.join(foreign) or 'nothing'}")
    raise SystemExit(0 if good and not foreign else 1)


def picture(
    browser: Browser,
    address: str,
    scheme: str,
    width: int,
    file: Path,
    media: str = "screen",
    most: int = TALLEST,
) -> tuple[int, float]:
    """Write a picture of a page, up to a height, and return how wide and high its content is."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.call("Emulation.setEmulatedMedia", media=media, features=features)
    browser.call("Page.navigate", url=address)
    browser.wait("Page.loadEventFired")
    measured = browser.call("Runtime.evaluate", expression="document.documentElement.scrollWidth")
    size = browser.call("Page.getLayoutMetrics")["cssContentSize"]
    clip = {"x": 0, "y": 0, "width": width, "height": min(size["height"], most), "scale": 1}
    shot = browser.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
    file.write_bytes(base64.b64decode(shot["data"]))
    return int(measured["result"]["value"]), float(size["height"])


if __name__ == "__main__":
    main()
