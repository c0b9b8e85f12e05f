"""Reports of a run, for people and programs. A `document.Report` is written as text, JSON or HTML.

document   the report as plain values and as JSON; the function that writes a report into a file
text       the report as text for a terminal
html       the report as one self-contained HTML file
pictures   timelines and charts for the HTML file, drawn by matplotlib
histories  turns a recorded history of `conformance.history` into spans for a timeline and values over time
"""
