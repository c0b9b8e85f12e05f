"""Reports of a run, for people and programs. A `run.Report` is written as text, JSON or HTML.

run        the report as plain values: `Report`
document   makes the report of a run, converts it to JSON and back, and writes it into a file
text       the report as text for a terminal
html       the report as one self-contained HTML file
pictures   timelines and charts for the HTML file, drawn by matplotlib
histories  turns a recorded history of `conformance.history` into spans for a timeline and values over time
"""
