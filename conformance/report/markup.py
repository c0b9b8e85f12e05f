"""Build elements of HTML and SVG. Text is escaped, so that it never becomes markup."""

from __future__ import annotations

from xml.etree import ElementTree as ET

Content = str | ET.Element


def tag(name: str, *content: Content, **attributes: str | float) -> ET.Element:
    """Return an element. `class_` becomes the attribute `class`, `stroke_width` becomes `stroke-width`. Numbers get at most two
    decimals.
    """
    made = ET.Element(name, {key.strip("_").replace("_", "-"): _value(value) for key, value in attributes.items()})
    return add(made, *content)


def add(element: ET.Element, *content: Content) -> ET.Element:
    """Append texts and elements to the element. Return the element."""
    for each in content:
        if isinstance(each, ET.Element):
            element.append(each)
        elif len(element):
            element[-1].tail = (element[-1].tail or "") + visible(each)
        else:
            element.text = (element.text or "") + visible(each)
    return element


def visible(text: str) -> str:
    """Replace control characters by visible symbols, and half surrogates by escapes, because a document may contain neither."""
    pictures = "".join(chr(0x2400 + ord(c)) if ord(c) < 32 and c not in "\n\t" else "\u2421" if c == "\x7f" else c for c in text)
    return pictures.encode("utf-8", "backslashreplace").decode()


def written(element: ET.Element) -> str:
    """Return the element, and any SVG inside it, as HTML."""
    return ET.tostring(element, encoding="unicode", method="html")


def _value(value: str | float) -> str:
    if isinstance(value, str):
        return visible(value)
    return f"{value:.2f}".rstrip("0").rstrip(".")
