"""Draws the segments of a topic: parents, children and hash ranges, as a tree of text or as SVG. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape, quoteattr

from rich.text import Text
from rich.tree import Tree

from ledgers.plain_text import shown
from metadata.records.names import RING, is_persistent
from txnsegment.topics import SegmentDescription, TopicDescription

_WIDTH, _ROW, _BOX, _MARGIN = 960, 64, 36, 20
_COLOURS = {True: ("#d9f2e3", "#1a7f4b"), False: ("#eceff3", "#6b7785")}
"""Fill and line colours, by whether the segment is active."""


def tree(topic: TopicDescription) -> Tree:
    """Return a tree of the segments in which parents are above their children. Each segment appears once: a merged segment is below
    its first parent.
    """
    root = Tree(Text(shown(f"{topic.name}, epoch {topic.epoch}")))
    nodes: dict[int, Tree] = {}
    for segment in _parents_first(topic.segments):
        known = [parent for parent in segment.parents if parent in nodes]
        above = nodes[known[0]] if known else root
        others = f", also of {', '.join(map(str, known[1:]))}" if len(known) > 1 else ""
        nodes[segment.id] = above.add(Text(shown(f"{_short(segment)} {segment.state.value}{others}")))
    return root


def svg(topic: TopicDescription) -> str:
    """Return an SVG picture of the segments. Hash ranges run from left to right, generations from top to bottom. Lines lead from
    parents to children.
    """
    depth = generations(topic.segments)
    at = {s.id: s for s in topic.segments}
    height = _MARGIN * 2 + 24 + _ROW * (max(depth.values(), default=0) + 1)
    title = shown(f"{topic.name}, epoch {topic.epoch}")
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="12" '
        f'role="img" aria-label={quoteattr(title)}>',
        f'<text x="{_MARGIN}" y="{_MARGIN + 4}" font-size="14" fill="currentColor">{escape(title)}</text>',
    ]
    for segment in topic.segments:
        for parent in segment.parents:
            if parent in at:
                x1, x2 = _middle(at[parent]), _middle(segment)
                y1, y2 = _top(depth[parent]) + _BOX, _top(depth[segment.id])
                lines.append(f'<line x1="{x1:.1f}" y1="{y1}" x2="{x2:.1f}" y2="{y2}" stroke="#98a2ad"/>')
    lines += [_box(segment, _top(depth[segment.id])) for segment in topic.segments]
    return "\n".join([*lines, "</svg>", ""])


def generations(segments: Sequence[SegmentDescription]) -> dict[int, int]:
    """Return, for each segment id, the length of the longest path to the segment from an ancestor without known parents."""
    found: dict[int, int] = {}
    for segment in _parents_first(segments):
        found[segment.id] = max((found[parent] + 1 for parent in segment.parents if parent in found), default=0)
    return found


def _parents_first(segments: Sequence[SegmentDescription]) -> Iterator[SegmentDescription]:
    """Yield the segments in the order of their ids. A child's id is above the ids of its parents, so parents come first."""
    yield from sorted(segments, key=lambda segment: segment.id)


def _box(segment: SegmentDescription, top: int) -> str:
    fill, line = _COLOURS[segment.sealed_ms is None]
    left, width = _x(segment.start), _x(segment.end + 1) - _x(segment.start)
    label = f"{segment.id}" if width < 130 else _short(segment)
    return (
        f"<g><title>{escape(shown(f'{segment.name} {segment.state.value}'))}</title>"
        f'<rect x="{left + 1:.1f}" y="{top}" width="{max(width - 2, 1):.1f}" height="{_BOX}" rx="4" fill="{fill}" stroke="{line}"/>'
        f'<text x="{_middle(segment):.1f}" y="{top + _BOX / 2 + 4:.1f}" text-anchor="middle">{escape(shown(label))}</text></g>'
    )


def _short(segment: SegmentDescription) -> str:
    """Return the part of the segment's name after the topic's name. The first segment of a migrated topic keeps its `persistent://`
    name.
    """
    return segment.name if is_persistent(segment.name) else segment.name.rpartition("/")[2]


def _x(place: int) -> float:
    return _MARGIN + (_WIDTH - 2 * _MARGIN) * place / RING


def _middle(segment: SegmentDescription) -> float:
    return (_x(segment.start) + _x(segment.end + 1)) / 2


def _top(depth: int) -> int:
    return _MARGIN + 24 + depth * _ROW
