"""A tab of Chromium, and everything that it should not have said or asked for."""

from __future__ import annotations

import re
import shutil
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, Request, expect

#: How long anything may take that a test waits for (ms): a busy machine is slow, not broken.
PATIENCE = 60_000
#: Without these, Chromium itself calls out, and needs more of a container than tests have.
_FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--no-first-run",
]  # fmt: skip
#: A violation of the policy is said to the console by the page itself, so that none is missed.
_TELL = """addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`));"""

#: Asks until the answer is yes.
_UNTIL = """async (arg) => {
  const ask = %s;
  for (const end = performance.now() + %d; !(await ask(arg)); await new Promise((go) => setTimeout(go, 50)))
    if (performance.now() > end) throw new Error("it never came true");
}"""

expect.set_options(timeout=PATIENCE)


def launch(playwright: Playwright) -> Browser:
    """Debian's Chromium: the browser that Playwright brings is fetched from elsewhere."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    assert path, "chromium is missing: `make setup` installs it"
    return playwright.chromium.launch(executable_path=path, args=_FLAGS, timeout=PATIENCE)


def until(page: Page, asked: str, arg: object = None) -> None:
    """Wait until this async function says yes; `wait_for_function` takes any promise for a yes."""
    page.evaluate(_UNTIL % (asked, PATIENCE), arg)


class Eyes:
    """One tab. `complaints` is what must be empty at the end; `forgive` what a test brings about itself."""

    def __init__(self, browser: Browser, address: str, options: dict[str, Any]) -> None:
        self.address = address
        self._forgiven: list[re.Pattern[str]] = []
        self._heard: list[str] = []
        settings: dict[str, Any] = {
            "viewport": {"width": 1280, "height": 800}, "timezone_id": "UTC", "locale": "en-GB",
            "reduced_motion": "reduce", "color_scheme": "light",
        }  # fmt: skip
        self.context = browser.new_context(**{**settings, **options})
        self.context.add_init_script(_TELL)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self._heard.append(f"error: {error}"))
        self.page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._heard.append(f"{message.type}: {message.text}")

    def _request(self, request: Request) -> None:
        if not request.url.startswith(("data:", "blob:")):
            host = urlsplit(request.url).netloc
            if host != urlsplit(self.address).netloc:
                self._heard.append(f"a request to another host: {request.url}")

    @property
    def complaints(self) -> list[str]:
        return [each for each in self._heard if not any(found.search(each) for found in self._forgiven)]

    def forgive(self, pattern: str) -> None:
        self._forgiven.append(re.compile(pattern))

    def go(self, path: str) -> None:
        """To a place of the dashboard, as its address has it behind the #."""
        self.page.goto(f"{self.address}/#{path}")
        expect(self.page.locator("main")).to_be_visible()

    def close(self) -> None:
        self.context.close()
