"""Contrast as WCAG 2.2 computes it (1.4.3 for text, 1.4.11 for marks), from what the browser really paints."""

from __future__ import annotations

import re
from collections.abc import Sequence

from playwright.sync_api import Page

Colour = tuple[float, float, float, float]
"""Red, green and blue up to 255, and opacity up to 1."""

PAINTED = """selector => [...document.querySelectorAll(selector)].filter((one) => {
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    const box = one.getBoundingClientRect();
    return own && box.width && box.height && !one.closest(".unseen, .skip, title, noscript, option")
        && getComputedStyle(one).visibility === "visible";
}).map((one) => {
    const style = getComputedStyle(one);
    const grounds = [];
    for (let up = one; up; up = up.parentElement) grounds.push(getComputedStyle(up).backgroundColor);
    return {
        text: one.textContent.trim().slice(0, 40),
        colour: one.namespaceURI.endsWith("svg") ? style.fill : style.color,
        grounds,
        pixels: parseFloat(style.fontSize),
        bold: parseInt(style.fontWeight) >= 700,
    };
})"""
MARKS = "#map .report .mark, #map .user, #map .shelter, .chart .curve, .bar div"
MARKED = """selector => [...document.querySelectorAll(selector)].map((one) => {
    const style = getComputedStyle(one);
    const paint = one.matches(".shelter") ? "fill" : one.matches("div") ? "backgroundColor" : "stroke";
    const grounds = [];
    for (let up = one.parentElement; up; up = up.parentElement) grounds.push(getComputedStyle(up).backgroundColor);
    return {text: one.getAttribute("class") ?? one.parentElement.className, colour: style[paint], grounds};
})"""


def faint_texts(page: Page, selector: str = "body *") -> list[str]:
    """Texts with less than 4.5 : 1, or less than 3 : 1 if they are large."""
    found = page.evaluate(PAINTED, selector)
    assert found
    return [
        f"{one['text']}: {ratio:.2f}"
        for one in found
        if (ratio := contrast(one["colour"], one["grounds"]))
        < (3 if one["pixels"] >= 24 or (one["bold"] and one["pixels"] >= 18.66) else 4.5)
    ]


def faint_marks(page: Page) -> list[str]:
    """Marks whose outline has less than 3 : 1."""
    found = page.evaluate(MARKED, MARKS)
    assert len(found) > 20
    return [
        f"{one['text']}: {ratio:.2f}" for one in found if (ratio := contrast(one["colour"], one["grounds"])) < 3
    ]


def contrast(colour: str, grounds: Sequence[str]) -> float:
    """The contrast of a colour with the grounds it lies on, the nearest first."""
    ground: Colour = (255, 255, 255, 1)
    for layer in reversed(grounds):
        ground = _over(_parsed(layer), ground)
    lighter, darker = sorted((_luminance(_over(_parsed(colour), ground)), _luminance(ground)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: Colour) -> float:
    """Relative luminance, as WCAG 2.2 defines it."""
    red, green, blue = (
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in (part / 255 for part in colour[:3])
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _over(top: Colour, ground: Colour) -> Colour:
    red, green, blue = (
        top[3] * above + (1 - top[3]) * below for above, below in zip(top[:3], ground[:3], strict=True)
    )
    return red, green, blue, 1


def _parsed(colour: str) -> Colour:
    """A computed colour: rgb(1, 2, 3) or rgba(1, 2, 3, 0.5)."""
    assert colour.startswith("rgb"), colour
    red, green, blue, *opacity = (float(part) for part in re.findall(r"[\d.]+", colour))
    return red, green, blue, opacity[0] if opacity else 1
