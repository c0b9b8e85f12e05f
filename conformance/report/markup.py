"""Elements of HTML and SVG, built so that text can never become markup."""

from __future__ import annotations

from xml.etree import ElementTree as ET

Content = str | ET.Element


def tag(name: str, *content: Content, **attributes: str | float) -> ET.Element:
    """An element. Attributes: `class_` is `class`, `stroke_width` is `stroke-width`; numbers to two decimals."""
    made = ET.Element(name, {key.strip("_").replace("_", "-"): _value(value) for key, value in attributes.items()})
    return add(made, *content)


def add(element: ET.Element, *content: Content) -> ET.Element:
    """Append texts and elements to the element; returns the element."""
    for each in content:
        if isinstance(each, ET.Element):
            element.append(each)
        elif len(element):
            element[-1].tail = (element[-1].tail or "") + visible(each)
        else:
            element.text = (element.text or "") + visible(each)
    return element


def visible(text: str) -> str:
    """Control characters as their pictures and half surrogates as escapes: a document may contain neither."""
    pictures = "".join(chr(0x2400 + ord(c)) if ord(c) < 32 and c not in "\n\t" else "\u2421" if c == "\x7f" else c for c in text)
    return pictures.encode("utf-8", "backslashreplace").decode()


def written(element: ET.Element) -> str:
    """The element as HTML; SVG inside it as well."""
    return ET.tostring(element, encoding="unicode", method="html")


def _value(value: str | float) -> str:
    if isinstance(value, str):
        return visible(value)
    return f"{value:.2f}".rstrip("0").rstrip(".")
