"""The results of a run, for people and programs: one `document.Report`, written as text, JSON or HTML.

document   the report as plain values; its JSON; writing it to a file by its suffix
text       for a terminal
html       one self-contained file; its pictures are drawn by `pictures`
pictures   timelines and charts, by matplotlib
histories  a recorded history of `conformance.history` as spans for a timeline and as values over time
"""
