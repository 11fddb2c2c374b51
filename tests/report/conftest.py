"""A Chromium for the tests that look at the page as a user does; where there is none, they are skipped and say why."""

import shutil

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@pytest.fixture(scope="session")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install playwright")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser to look at the report with: install one of {', '.join(BROWSERS)}")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser):
    """Return a function that opens a report; afterwards no error may have been logged and nothing been fetched."""
    contexts, errors, requests = [], [], []

    def opened(path, view="", script=None, **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        contexts.append(context)
        if script:
            context.add_init_script(script)
        page = context.new_page()
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(f"{path.as_uri()}{view}")
        page.wait_for_selector("html[data-review=ready]", state="attached")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert errors == []
    assert requests
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []
