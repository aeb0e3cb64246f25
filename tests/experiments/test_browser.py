"""Report and site in a real browser: they open, are clicked through, fit a phone; nothing that a model wrote runs."""

import json
import re
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from paths import REPOSITORY
from synthetic_runs import ARMS, write_comparison

from halfway.experiments.report.report_page import write_report

api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("chromium is missing", allow_module_level=True)

SITE = REPOSITORY / "build" / "site"
HOSTILE = (
    "</pre></details><script>document.title='OWNED'</script>",
    "<img src=x onerror=\"document.title='OWNED'\">",
    "<svg/onload=document.title='OWNED'><style>body{display:none}</style>",
    "{{ 7 * 7 }}{% raw %}{# #}${7*7}",
    "\u202eevil\u2066 \x1b[31m \x00 \ud800 \u2028",
    "]]>--><a href=\"javascript:document.title='OWNED'\" autofocus>x</a>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:1/'><base href='http://127.0.0.1:1/'>",
)


def write_samples(folder: Path, problem: str, texts: tuple[str, ...], hint: str = "") -> None:
    """Texts that a run is said to have kept of a problem."""
    turn = {"replayed": "a prefix ", "text": " ".join(texts), "observation": texts[0]}
    rollout = {"passed": True, "truncated": True, "turns": [turn]}
    record: dict[str, Any] = {"problem": problem, "origin": texts[0], "k": 1, "n": 1, "hint": hint, "decisions": []}
    record |= {"prompt": f"{texts[0]} {hint} {texts[-1]}", "rollouts": [rollout]}
    lines = [json.dumps({**record, "step": visit, "visit": visit}) for visit in (1, 2, 3, 4)]
    (folder / "samples.jsonl").write_text("".join(line + "\n" for line in lines))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("report")
    write_comparison(directory, {arm: ARMS[arm] for arm in ("grpo", "greso", "prefix_sampling")}, (0, 1), steps=8)
    problem = json.loads((directory / "grpo/seed-0/decisions.jsonl").read_text().splitlines()[0])["problem"]
    for arm in ("grpo", "greso"):
        write_samples(directory / arm / "seed-0", problem, HOSTILE, hint="<b>a hint</b>")
    return write_report(directory)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(params=[(1280, "light"), (390, "dark")], ids=["wide", "phone"])
def page(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A tab in which any error or request to a network fails the test."""
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    tab, wrong = context.new_page(), list[str]()
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    outside = re.compile("https?://(?!127[.]0[.]0[.]1:[0-9]{4})")
    tab.on("request", lambda request: wrong.append(request.url) if outside.match(request.url) else None)
    yield tab
    context.close()
    assert wrong == []


def fits(page: Any) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def test_a_report_is_clicked_through(page: Any, report: Path) -> None:
    page.goto(report.as_uri())
    assert page.locator(".verdict p").first.inner_text().startswith("Where every run has spent")
    assert fits(page)
    for link in page.locator("nav.contents a").all():
        link.click()
        assert page.locator(link.get_attribute("href")).is_visible()
    rank = page.locator("#table-1 th", has_text="rank")
    ranks = page.locator("#table-1 tbody tr td:nth-child(2)")
    for order, wanted in (("descending", ["3", "2", "1"]), ("ascending", ["1", "2", "3"])):
        rank.click()
        assert rank.get_attribute("aria-sort") == order and ranks.all_inner_texts() == wanted
    hint = page.locator("#problems pre mark.hint").first
    assert hint.is_hidden()
    page.locator("#problems > details > summary").first.click()
    page.locator("#problems details details > summary").first.click()
    assert hint.is_visible() and fits(page)


def drawn(page: Any, name: str, state: str) -> Any:
    """The place of a chart, once it shows so many arms against this measure."""
    place = page.locator(f"[data-chart={name}][data-drawn='{state}']")
    page.locator(f"[data-chart={name}]").scroll_into_view_if_needed()
    place.wait_for(timeout=60_000)
    return place


def test_arms_and_the_x_axis_are_chosen_for_all_charts_at_once(page: Any, report: Path) -> None:
    page.goto(report.as_uri())
    drawn(page, "learning_curves", "3 rollouts")
    page.locator(".controls button", has_text="greso").click()
    page.locator(".controls select").select_option("tokens")
    for name in ("learning_curves", "training"):
        assert drawn(page, name, "2 tokens").locator("canvas").count() == 1
    page.reload()
    drawn(page, "learning_curves", "2 tokens")
    assert page.locator(".controls button", has_text="greso").get_attribute("aria-pressed") == "false"
    assert fits(page)


def test_a_value_is_shown_under_the_cursor(page: Any, report: Path) -> None:
    page.goto(report.as_uri())
    box = drawn(page, "rollout_fates", "3 rollouts").locator("canvas").bounding_box()
    tip = page.locator("#vg-tooltip-element.visible")
    for across in range(20, 100, 4):
        page.mouse.move(box["x"] + box["width"] * across / 100, box["y"] + box["height"] * 0.55)
        if tip.count():
            break
    assert "share" in tip.inner_text() and fits(page)


def test_a_wasted_rollout_is_three_clicks_from_its_text(page: Any, report: Path) -> None:
    page.goto(report.as_uri())
    place = drawn(page, "rollout_fates", "3 rollouts").locator("canvas")
    said = page.locator(".filter output")
    every, box = said.inner_text(), place.bounding_box()
    for across in range(95, 20, -4):  # the last part of a bar is no trained one
        place.click(position={"x": box["width"] * across / 100, "y": box["height"] * 0.55})
        if said.inner_text() != every:
            break
    assert said.inner_text() != every and page.locator(".filter select").input_value() in ("zero-variance", "surplus")
    page.locator(".filter select").select_option("")
    page.locator(".problems a").first.click()
    page.locator("#problems details[open] details > summary").first.click()
    assert page.locator("#problems pre").first.is_visible()


def test_nothing_that_a_model_wrote_acts_in_the_page(page: Any, report: Path) -> None:
    page.goto(report.as_uri())
    for summary in page.locator("#problems summary").all():
        summary.dispatch_event("click")
    text = page.locator("#problems pre").nth(1).inner_text()
    for hostile in HOSTILE[:4]:
        assert hostile in text, "it is shown as it was written"
    assert "OWNED" not in page.title() and page.url == report.as_uri()
    assert page.locator("#problems :is(script, style, img, svg, b, meta, base)").count() == 0
    assert all(link.get_attribute("href").startswith("#problem-") for link in page.locator("#problems a").all())
    assert "\x1b" not in text and "\u202e" not in text
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<p id=x>still here</p>')")
    assert page.locator("#x").is_visible()


def test_dark_is_dark_and_light_is_light(page: Any, report: Path) -> None:
    page.goto(report.as_uri())
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    shade = "e => getComputedStyle(e)[{0!r}].match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0) / 3"
    paper = page.locator("body").evaluate(shade.format("backgroundColor"))
    ink = page.locator("h1").evaluate(shade.format("color"))
    assert (paper < 60 and ink > 180) if dark else (paper > 200 and ink < 80)


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """The address of the built site."""
    if not SITE.exists():
        pytest.skip("the site is not built (make site)")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None: ...


def test_the_site_is_clicked_through(page: Any, site: str) -> None:
    page.goto(f"{site}/index.html")
    assert "Halfway" in page.title() and fits(page)
    if not page.locator(".md-search__input").is_visible():
        page.locator("label[for=__search]").first.click()
    page.locator(".md-search__input").fill("zero_variance/all_fail")
    page.locator(".md-search-result__link[href*='docs/metrics']").first.click()
    page.wait_for_url("**/docs/metrics.html*")
    for name, heading in (("docs/metrics", "Metrics"), ("reference/decision_log", "The decision log")):
        page.goto(f"{site}/{name}.html")
        assert page.locator("h1").inner_text().startswith(heading) and fits(page)


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("GRESO", "controllers/greso"),
        ("AdaRFT", "controllers/servo"),
        ("out of memory", "docs/troubleshooting"),
        ("prefix sampling table 2", "what_is_reproduced/"),
    ],
)
def test_the_first_hit_of_the_search_is_the_page_about_it(browser: Any, site: str, words: str, page: str) -> None:
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    tab.goto(f"{site}/index.html")
    tab.locator(".md-search__input").fill(words)
    first = tab.locator(".md-search-result__item > a.md-search-result__link").first
    assert page in first.get_attribute("href")
    tab.close()
