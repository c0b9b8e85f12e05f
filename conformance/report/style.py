"""The style sheet of the HTML page, for light and dark mode."""

STYLE = """
:root {
  color-scheme: light dark; --ok: #2e7d4f; --bad: #c62828; --na: #8a6d1d; --ink: #222;
  --paper: #fff; --faint: #8884;
}
@media (prefers-color-scheme: dark) { :root {
  --ok: #6cc08b; --bad: #ff7b72; --na: #d6b656; --ink: #ddd; --paper: #16181c;
} }
body {
  font: 14px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1180px;
  margin: 2em auto; padding: 0 1em;
}
h1.failed, .failed .outcome, section.failed h2 { color: var(--bad); }
h1.ok, .ok .outcome { color: var(--ok); }
.na .outcome { color: var(--na); }
dl.facts { display: grid; grid-template-columns: max-content 1fr; gap: 0 1em; }
dl.facts dd { margin: 0; font-family: ui-monospace, monospace; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .25em .6em; border-bottom: 1px solid var(--faint); }
th[scope=rowgroup] { padding-top: 1em; }
.outcome { white-space: nowrap; font-weight: 600; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.where, .reason { opacity: .7; font-size: 12px; }
section { margin-top: 2.5em; border-top: 2px solid var(--faint); }
pre, code {
  font-family: ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; background: var(--faint);
  padding: .15em .4em;
}
figure { margin: 1em 0; }
figcaption { margin-bottom: .4em; }
ul.wrong { color: var(--bad); }
figure svg { width: 100%; height: auto; background: #fff; }
"""
