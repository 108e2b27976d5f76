"""The page in a real browser: moving figures, the switch, accessibility."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from support.web.chromium import CHROMIUM, FLAGS
from support.web.contrast import contrast, faint_marks, faint_texts
from support.web.moving_city import MovingCity
from support.web.page_server import PageServer

expect.set_options(timeout=20_000)
pytestmark = [pytest.mark.processes, pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")]

SIZES = ((360, 740), (768, 1024), (1280, 800))
"""A phone, a tablet, a desktop."""

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def city() -> MovingCity:
    return MovingCity(seconds=130)


@pytest.fixture
def server(city: MovingCity) -> Iterator[PageServer]:
    with PageServer(city) as server:
        yield server


class Complaints(list[str]):
    """What the browser complains about: console, scripts, requests that fail or go elsewhere."""

    def listen(self, page: Page, url: str) -> None:
        page.on("console", lambda message: self.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.append(f"script: {error}"))
        page.on("requestfailed", lambda request: self.append(f"failed: {request.url}"))
        page.on("request", lambda request: request.url.startswith(url) or self.append(f"asks {request.url}"))
        page.on("response", lambda answer: answer.status < 400 or self.append(f"{answer.status}: {answer.url}"))


@pytest.fixture
def complaints() -> Complaints:
    return Complaints()


@pytest.fixture
def open_page(browser: Browser, server: PageServer, complaints: Complaints) -> Iterator[Callable[[], Page]]:
    """Opens the page as a visitor of a given kind sees it, and waits for the first figures."""
    contexts: list[BrowserContext] = []

    def open_it() -> Page:
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        contexts.append(context)
        page = context.new_page()
        complaints.listen(page, server.url)
        page.goto(server.url)
        expect(page.locator("#status")).to_have_text("Live")
        expect(page.locator("#map .report.young").first).to_be_attached()
        expect(page.locator(".chart .curve")).to_have_count(3)
        return page

    yield open_it
    for context in contexts:
        context.close()


def number(page: Page, selector: str) -> float:
    return float(re.sub(r"[^\d.]", "", page.locator(selector).inner_text()))


def test_figures_and_marks_move_without_errors(open_page: Callable[[], Page], complaints: Complaints) -> None:
    page = open_page()
    figures = ["#publications", "#results", "#notifications", "#fetched-more", "#result"]
    clock = page.locator("#elapsed").inner_text()
    before = {figure: page.locator(figure).inner_text() for figure in figures}
    people = page.locator("#map .user.online").get_attribute("d")
    curve = page.locator("#chart-latency .curve").get_attribute("d")
    newest = page.locator("#map .report").count()
    old = page.locator("#map .report title").last.text_content()
    expect(page.locator("#map .report")).not_to_have_count(newest)
    assert page.locator("#elapsed").inner_text() != clock
    assert {figure for figure in figures if page.locator(figure).inner_text() == before[figure]} <= {
        "#fetched-more"
    }
    assert number(page, "#publications") > float(before["#publications"].replace(",", ""))
    assert page.locator("#map .user.online").get_attribute("d") != people
    assert page.locator("#chart-latency .curve").get_attribute("d") != curve
    assert page.locator("#map .report title").nth(newest - 1).text_content() != old
    assert complaints == []


def test_page_shows_state(open_page: Callable[[], Page], city: MovingCity) -> None:
    page = open_page()
    shown = city.snapshot()
    totals = shown["totals"]
    assert isinstance(totals, dict)
    expect(page.locator("#elapsed")).to_have_text(re.compile(r"^2:\d\d of 10:00$"))
    assert number(page, "#publications") == pytest.approx(totals["publications"], abs=60)
    assert page.locator("#brokers tr").count() == 3
    assert page.locator("#brokers tr").first.inner_text().split("\t")[0] == "harbour"
    assert re.fullmatch(r"\d\.\d MB of 4.0 MB", page.locator("#brokers .cache").first.inner_text().strip())
    assert page.locator("#reports tr").count() == 6
    expect(page.locator("#map-summary")).to_contain_text("24 shelters with 5,520 places")
    assert page.locator("figure .chart").count() == 3
    assert "lowest" in str(page.locator("#chart-hit-ratio .chart").get_attribute("aria-label"))


def test_kind_is_shown_by_shape_and_colour(open_page: Callable[[], Page]) -> None:
    page = open_page()
    shapes = page.eval_on_selector_all(
        "#legend .symbol[class*=kind-] path", "paths => paths.map(path => path.getAttribute('d'))"
    )
    assert len(set(shapes)) == len(shapes) > 4
    on_map = page.eval_on_selector_all(
        "#map .report", "marks => marks.map(mark => [mark.dataset.kind, mark.children[1].getAttribute('d')])"
    )
    assert len({kind for kind, _ in on_map}) == len({(kind, shape) for kind, shape in on_map})
    sizes = page.eval_on_selector_all(
        "#map .report .mark", "marks => marks.map(mark => Math.round(mark.getBoundingClientRect().width))"
    )
    assert max(sizes) > 1.5 * min(sizes) > 8


def test_chart_describes_point_under_mouse(open_page: Callable[[], Page]) -> None:
    page = open_page()
    page.locator("#chart-hit-ratio .chart").hover()
    expect(page.locator("#chart-hit-ratio .value")).to_have_text(re.compile(r"^\d+\.\d %, (5|6)\d s ago$"))
    page.mouse.move(0, 0)
    expect(page.locator("#chart-hit-ratio .value")).to_have_text(re.compile(r"^\d+\.\d %$"))


def test_switch_works_by_mouse(open_page: Callable[[], Page], city: MovingCity, complaints: Complaints) -> None:
    page = open_page()
    expect(page.locator("#current")).to_have_text("lru")
    page.get_by_label("Change to").select_option("lsc")
    expect(page.locator("#meaning")).to_contain_text("fewest waiting subscribers")
    page.get_by_role("button", name="Switch").click()
    expect(page.locator("#answer")).to_have_text("Done: all brokers use lsc now.")
    expect(page.locator("#current")).to_have_text("lsc")
    expect(page.locator("#brokers .policy").first).to_have_text("lsc")
    expect(page.locator("#chart-hit-ratio text.switched")).to_have_text("lsc")
    assert city.switched == ["lsc"]
    assert complaints == []


def test_switch_works_by_keyboard_alone(open_page: Callable[[], Page], city: MovingCity) -> None:
    page = open_page()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the policy switch"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "choice"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("ArrowDown")
    expect(page.locator("#choice")).to_have_value("lsc")
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineWidth") == "3px"
    page.keyboard.press("Enter")
    expect(page.locator("#answer")).to_have_text("Done: all brokers use lsc now.")
    assert city.switched == ["lsc"]
    assert page.evaluate("document.activeElement.tagName") == "BUTTON"


def test_unconfirmed_choice_survives_change_by_another_user(
    open_page: Callable[[], Page], city: MovingCity
) -> None:
    page = open_page()
    page.get_by_label("Change to").select_option("exp")
    city.policy = "ttl"
    expect(page.locator("#current")).to_have_text("ttl")
    expect(page.locator("#choice")).to_have_value("exp")


def test_rejected_switch_shows_reason(open_page: Callable[[], Page], city: MovingCity) -> None:
    page = open_page()
    page.evaluate("document.getElementById('choice').append(new Option('best'))")
    page.evaluate("document.getElementById('choice').value = 'best'")
    page.get_by_role("button", name="Switch").click()
    expect(page.locator("#answer")).to_contain_text("Not switched: unknown policy 'best'")
    assert city.switched == []


def test_page_reports_absent_server_and_recovers(open_page: Callable[[], Page], server: PageServer) -> None:
    page = open_page()
    server.stop()
    expect(page.locator("#status")).to_have_text("No connection")
    expect(page.locator("#away")).to_contain_text("The platform does not answer. What you see is")
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        assert (scheme, faint_texts(page, "header *, #away")) == (scheme, [])
    page.get_by_role("button", name="Switch").click()
    expect(page.locator("#answer")).to_have_text("Not switched: the platform does not answer.")
    shown = page.locator("#elapsed").inner_text()
    server.start()
    expect(page.locator("#status")).to_have_text("Live")
    expect(page.locator("#away")).to_be_hidden()
    expect(page.locator("#elapsed")).not_to_have_text(shown)


def test_page_needs_no_horizontal_scrolling(open_page: Callable[[], Page]) -> None:
    page = open_page()
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        expect(page.locator("#map")).to_have_attribute("viewBox", re.compile(rf"^0 0 {map_width(page)} "))
        assert map_width(page) > 0.4 * width
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.evaluate(BEYOND_THE_EDGE, width) == []


def map_width(page: Page) -> int:
    return int(page.evaluate("document.getElementById('map').clientWidth"))


BEYOND_THE_EDGE = """width => [...document.querySelectorAll("main *:not(#map *)")]
    .filter((one) => one.getBoundingClientRect().right > width + 0.5 && !one.closest(".unseen"))
    .map((one) => one.outerHTML.slice(0, 80))"""


def test_text_has_sufficient_contrast(open_page: Callable[[], Page]) -> None:
    page = open_page()
    page.get_by_role("button", name="Switch").click()
    expect(page.locator("#answer")).to_contain_text("Done")
    page.mouse.move(0, 0)
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        assert (scheme, faint_texts(page), faint_marks(page)) == (scheme, [], [])


def test_marks_stay_still_with_reduced_motion(open_page: Callable[[], Page]) -> None:
    page = open_page()
    page.emulate_media(reduced_motion="no-preference")
    assert page.evaluate("document.getAnimations().length") > 0
    page.emulate_media(reduced_motion="reduce")
    page.wait_for_timeout(1200)  # what had begun comes to its end, and new figures arrive
    assert page.evaluate("document.getAnimations().length") == 0


def test_hidden_page_sends_no_requests(open_page: Callable[[], Page], city: MovingCity) -> None:
    page = open_page()
    page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
    page.wait_for_timeout(100)
    seen, shown = city.seconds, page.locator("#elapsed").inner_text()
    page.wait_for_timeout(1500)
    assert city.seconds == seen
    page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.locator("#elapsed")).not_to_have_text(shown)
    assert city.seconds > seen


def test_headings_tables_and_controls_have_names(open_page: Callable[[], Page]) -> None:
    page = open_page()
    output = page.locator("body").aria_snapshot()
    for part in (
        'heading "Newsstand emergencies in a city" [level=1]',
        'heading "Figures" [level=2]',
        'combobox "Change to"',
        'button "Switch"',
        'img "Map of the city"',
        'columnheader "Kind"',
        'rowheader "harbour"',
    ):
        assert part in output
    live = page.eval_on_selector_all("[role=status], [aria-live]", "found => found.map(one => one.id)")
    assert live == ["status", "answer"]


def test_published_text_is_never_markup(
    open_page: Callable[[], Page], city: MovingCity, complaints: Complaints
) -> None:
    page = open_page()
    city.report("<img src=x onerror=alert(1)>")
    expect(page.locator("#reports")).to_contain_text("<img src=x onerror=alert(1)>")
    assert page.locator("img").count() == 0
    assert complaints == []


def test_page_shows_platform_with_little_state(browser: Browser, complaints: Complaints) -> None:
    class Young(MovingCity):
        def snapshot(self) -> dict[str, object]:
            unknown = {"p50": None, "p99": None}
            shown = super().snapshot()
            shown |= {"reports": [], "shelters": [], "users": [], "brokers": [], "history": []}
            shown |= {"latency_ms": {"notification": unknown, "result": unknown}, "duration_s": None}
            shown["totals"] = dict.fromkeys(("publications", "results", "notifications", "hits", "misses"), 0)
            shown.pop("policy_titles")
            return shown

    with PageServer(Young()) as server, browser.new_context() as context:
        page = context.new_page()
        complaints.listen(page, server.url)
        page.goto(server.url)
        expect(page.locator("#elapsed")).to_have_text(re.compile(r"^0:\d\d$"))
        expect(page.locator("#hit-ratio")).to_have_text("–")
        expect(page.locator("#notification-more")).to_have_text("p99 –")
        assert "not known yet" in str(page.locator("#chart-latency .chart").get_attribute("aria-label"))
        assert complaints == []


def test_contrast_formula_agrees_with_known_values() -> None:
    assert contrast("rgb(0, 0, 0)", ["rgb(255, 255, 255)"]) == pytest.approx(21)
    assert contrast("rgb(118, 118, 118)", ["rgba(0, 0, 0, 0)", "rgb(255, 255, 255)"]) == pytest.approx(
        4.54, abs=0.01
    )
