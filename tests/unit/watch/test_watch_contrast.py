"""The page's colours are distinct, light and dark: contrast by WCAG 2.2 (1.4.3 text, 1.4.11 other than text)."""

import re
from importlib import resources

import pytest

CSS = resources.files("tidegauge_lab.watch").joinpath("page", "watch.css").read_text(encoding="utf-8")
ROOTS = [
    dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})", block)) for block in re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
]
PALETTES = {"light": ROOTS[0], "dark": ROOTS[0] | ROOTS[1]}
EPOCHS = [f"e{number}" for number in range(8)]


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_wcags():
    assert contrast("#fff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_dark_has_each_colour_of_light():
    assert len(ROOTS) == 2
    assert set(ROOTS[0]) == set(ROOTS[1])


@pytest.mark.parametrize("palette", PALETTES)
def test_text_is_readable_on_each_ground_that_it_stands_on(palette: str):
    colours = PALETTES[palette]
    grounds = {
        "paper": ["ink", "soft", "accent", "good", "bad", "warn"],
        "card": ["ink", "soft", "accent", "good", "bad", "warn"],
        "field": ["ink", "soft", "bad"],
        "bad-paper": ["ink"],
    }
    weak = {
        f"{text} on {ground}": round(ratio, 2)
        for ground, texts in grounds.items()
        for text in texts
        if (ratio := contrast(colours[text], colours[ground])) < 4.5
    }
    assert weak == {}


@pytest.mark.parametrize("palette", PALETTES)
def test_marks_stand_out(palette: str):
    """The focus ring on every ground; the high watermark on every epoch's colour and on an empty bar."""
    colours = PALETTES[palette]
    pairs = [("accent", ground) for ground in ("paper", "card", "field")]
    pairs += [("ink", ground) for ground in ("field", "card", *EPOCHS)]
    weak = {
        f"{mark} on {ground}": round(ratio, 2)
        for mark, ground in pairs
        if (ratio := contrast(colours[mark], colours[ground])) < 3
    }
    assert weak == {}


@pytest.mark.parametrize("palette", PALETTES)
def test_neighbouring_epochs_differ_and_stand_out_from_an_empty_bar(palette: str):
    """The text names each epoch too, so that 1.4.11 asks nothing here; still no two neighbours may be one colour."""
    colours = PALETTES[palette]
    for one, other in zip(EPOCHS, [*EPOCHS[1:], EPOCHS[0]], strict=True):
        assert colours[one] != colours[other]
    assert all(contrast(colours[epoch], colours["field"]) >= 1.5 for epoch in EPOCHS)
