"""The stylesheet of the HTML report: light, dark, print and phone, with no font or image from elsewhere."""

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fdfcfa; --card: #ffffff; --ink: #16202a; --muted: #55606c; --rule: #dcdfe3; --grid: #e8eaed;
  --accent: #00675f; --accent-soft: #e3f1ef; --bar: #8fa3b5; --warn: #9a3412; --warn-soft: #fbeee6; --bad: #b3123f;
  --s1: #0b6fb8; --s2: #b45309; --s3: #7c3aed; --s4: #15803d;
  --s5: #be185d; --s6: #0e7490; --s7: #854d0e; --s8: #475569;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #0f1419; --card: #161c23; --ink: #e7ebef; --muted: #a3aeb9; --rule: #2d3640; --grid: #252d36;
    --accent: #4fd1bd; --accent-soft: #12322f; --bar: #5d7184; --warn: #f5a26b; --warn-soft: #35231a; --bad: #ff7d9c;
    --s1: #6db9f2; --s2: #f0a45a; --s3: #b79cf9; --s4: #6fd08c;
    --s5: #f48ab5; --s6: #5cc8dd; --s7: #d8b25c; --s8: #a8b4c2;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Helvetica Neue", Arial, sans-serif;
}
main { max-width: 1180px; margin: 0 auto; padding: 40px 28px 64px; }
h1, h2, h3 { line-height: 1.25; text-wrap: balance; overflow-wrap: anywhere; }
h1 { font-size: 2rem; margin: 2px 0 6px; letter-spacing: -0.015em; }
h2 { font-size: 1.25rem; margin: 52px 0 6px; letter-spacing: -0.01em; }
h3 { font-size: .95rem; margin: 0 0 8px; font-weight: 600; }
p { margin: 6px 0 14px; max-width: 74ch; }
.kicker {
  color: var(--accent); font-size: .8rem; font-weight: 650;
  letter-spacing: .07em; text-transform: uppercase; margin: 0;
}
.facts, .note, figcaption { color: var(--muted); font-size: .9rem; }
.verdict { border-left: 4px solid var(--accent); padding: 2px 0 2px 20px; margin: 26px 0 28px; }
.verdict.none { border-color: var(--bad); }
.verdict p { max-width: 78ch; overflow-wrap: anywhere; }
.verdict .speed { font-size: 1.3rem; line-height: 1.4; font-weight: 600; margin: 0 0 8px; }
.verdict .truth { margin: 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 0; }
.tile { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 14px 16px; }
.tile dt { color: var(--muted); font-size: .82rem; }
.tile dd {
  margin: 2px 0 0; font-size: 1.65rem; font-weight: 650;
  letter-spacing: -.02em; font-variant-numeric: tabular-nums;
}
.tile small { display: block; font-size: .8rem; font-weight: 400; letter-spacing: 0; color: var(--muted); }
.scroll {
  overflow-x: auto; border: 1px solid var(--rule); border-radius: 10px; background: var(--card); margin: 14px 0;
  -webkit-overflow-scrolling: touch;
}
.scroll:focus-visible, summary:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; font-size: .875rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: 10px 14px 0; color: var(--muted); font-size: .85rem; }
th, td { padding: 8px 10px; text-align: right; vertical-align: top; white-space: nowrap; }
th:first-child, td:first-child, .left { text-align: left; }
thead th {
  white-space: normal;
  color: var(--muted); font-weight: 600; font-size: .8rem;
  border-bottom: 1px solid var(--rule); vertical-align: bottom;
}
tbody + tbody tr:first-child > *, tbody.plain tr + tr > * { border-top: 1px solid var(--rule); }
tbody th { font-weight: 600; }
td small, th small { display: block; color: var(--muted); font-weight: 400; font-size: .78rem; line-height: 1.4; }
tr.reason td { padding-top: 0; padding-bottom: 12px; white-space: normal; color: var(--muted); font-size: .85rem; }
tr.reason span { display: block; max-width: min(92ch, 78vw); overflow-wrap: anywhere; }
tbody.chosen { background: var(--accent-soft); }
.broken { color: var(--warn); font-weight: 650; }
.tag {
  display: inline-block; border-radius: 999px; padding: 1px 9px; font-size: .8rem; font-weight: 600;
  border: 1px solid currentColor;
}
.tag.chosen { background: var(--accent); border-color: var(--accent); color: var(--card); }
.tag.passed, .tag.stopped, .tag.reference, .tag.baseline { color: var(--muted); }
.tag.rejected { color: var(--warn); }
.tag.failed { color: var(--bad); }
.panels {
  display: grid;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 330px), 1fr)); gap: 16px; margin: 16px 0;
}
.panels.one { grid-template-columns: minmax(0, 560px); }
figure {
  margin: 0; padding: 16px 16px 10px; background: var(--card);
  border: 1px solid var(--rule); border-radius: 10px; min-width: 0;
}
.plot { display: block; width: 100%; height: auto; max-width: 520px; }
.plot text {
  font-size: 11px; fill: var(--ink); font-family: inherit;
  paint-order: stroke; stroke: var(--card); stroke-width: 3px; stroke-linejoin: round;
}
.plot .tick { fill: var(--muted); font-size: 10.5px; }
.plot .strong { font-weight: 700; fill: var(--ink); }
.plot .value { font-weight: 650; font-size: 11.5px; }
.grid { stroke: var(--grid); }
.level { stroke: var(--ink); stroke-dasharray: 3 3; opacity: .75; }
.one { stroke: var(--ink); stroke-width: 1.4; }
.bar { fill: var(--bar); }
.bar.chosen { fill: var(--accent); }
.bar.rejected, .bar.failed { fill: var(--warn-soft); stroke: var(--warn); }
.whisker { stroke: var(--ink); stroke-width: 1.3; }
.series { fill: none; stroke-width: 1.7; stroke-linejoin: round; }
.series.reference { stroke: var(--ink); stroke-dasharray: 2 3; stroke-width: 2; }
.series.s1 { stroke: var(--s1); } .series.s2 { stroke: var(--s2); stroke-dasharray: 7 3; }
.series.s3 { stroke: var(--s3); stroke-dasharray: 3 2; } .series.s4 { stroke: var(--s4); stroke-dasharray: 9 2 2 2; }
.series.s5 { stroke: var(--s5); } .series.s6 { stroke: var(--s6); stroke-dasharray: 5 2; }
.series.s7 { stroke: var(--s7); stroke-dasharray: 1 2; } .series.s8 { stroke: var(--s8); stroke-dasharray: 10 4; }
.series.picked { stroke: var(--accent); stroke-width: 3.4; stroke-dasharray: none; }
.dot { fill: var(--bar); stroke: var(--card); } .dot.chosen { fill: var(--accent); }
.ring { fill: none; stroke: var(--accent); stroke-width: 1.8; }
.cross { stroke: var(--warn); stroke-width: 2.2; stroke-linecap: round; }
.leader { stroke: var(--muted); stroke-width: .8; opacity: .7; }
.out { fill: var(--warn); opacity: .07; } .gate { stroke: var(--warn); stroke-width: 1.3; }
.dot.broke { fill: var(--warn); }
.cell { fill: var(--card); stroke: var(--rule); } .heat { fill: var(--accent); }
.plot .bare { stroke: none; fill: var(--ink); }
.part { stroke: var(--card); stroke-width: .8; }
.part-tokenise { fill: var(--s2); } .part-compute { fill: var(--accent); } .part-queue { fill: var(--bad); }
.part-stage { fill: var(--s3); } .part-tensors { fill: var(--s8); } .part-wire { fill: var(--s1); }
.front { fill: none; stroke: var(--accent); stroke-width: 1.4; stroke-dasharray: 4 4; opacity: .8; }
th button { all: unset; cursor: pointer; display: inline-block; text-align: inherit; position: relative; }
th button::after {
  content: "↕"; position: absolute; right: -9px; bottom: 0; color: var(--muted); font-weight: 400; font-size: 9px;
}
th[aria-sort=ascending] button::after { content: "↑"; color: var(--accent); font-weight: 800; }
th[aria-sort=descending] button::after { content: "↓"; color: var(--accent); font-weight: 800; }
th button:focus-visible { outline: 2px solid var(--accent); outline-offset: 3px; border-radius: 3px; }
details h3 { margin: 22px 0 2px; }
.legend {
  list-style: none; display: flex; flex-wrap: wrap; gap: 4px 20px;
  padding: 0; margin: 12px 0; font-size: .875rem;
}
.legend svg { width: 34px; height: 10px; vertical-align: middle; margin-right: 7px; }
details { margin: 8px 0; }
summary { cursor: pointer; color: var(--accent); font-size: .9rem; width: fit-content; padding: 4px 0; }
dl.machine {
  display: grid; grid-template-columns: max-content minmax(0, 1fr);
  gap: 4px 22px; font-size: .92rem; margin: 12px 0;
}
dl.machine dt { color: var(--muted); } dl.machine dd { margin: 0; overflow-wrap: anywhere; }
ul.why { padding-left: 20px; max-width: 84ch; } ul.why li { margin: 6px 0; overflow-wrap: anywhere; }
pre {
  background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 14px 16px; margin: 12px 0;
  white-space: pre-wrap; overflow-wrap: anywhere; font-size: .875rem;
}
code, pre { font-family: ui-monospace, "SF Mono", "Cascadia Code", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
@media (max-width: 640px) {
  main { padding: 22px 16px 44px; }
  h1 { font-size: 1.5rem; } h2 { margin-top: 40px; }
  .verdict { padding-left: 14px; } .verdict .speed { font-size: 1.12rem; }
  .tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); } .tile dd { font-size: 1.35rem; }
  .tile:last-child:nth-child(odd) { grid-column: 1 / -1; }
  figure { padding: 12px 10px 8px; }
  th, td { padding: 7px 10px; }
  dl.machine { grid-template-columns: minmax(0, 1fr); gap: 0; } dl.machine dd { margin-bottom: 8px; }
}
@media print {
  :root {
    color-scheme: light;
    --paper: #fff; --card: #fff; --ink: #000; --muted: #444; --rule: #bbb; --grid: #ddd;
    --accent: #00675f; --accent-soft: #eef6f5; --bar: #8fa3b5; --warn: #9a3412; --warn-soft: #fbeee6; --bad: #b3123f;
    --s1: #0b6fb8; --s2: #b45309; --s3: #7c3aed; --s4: #15803d;
    --s5: #be185d; --s6: #0e7490; --s7: #854d0e; --s8: #475569;
  }
  body { font-size: 10.5pt; } main { max-width: none; padding: 0; } h2 { margin-top: 26px; }
  figure, tr, .tile, .verdict { break-inside: avoid; } h2, h3, summary { break-after: avoid; }
  .tiles { grid-template-columns: repeat(5, minmax(0, 1fr)); gap: 6px; } .tile { padding: 8px; }
  .tile dd { font-size: 13pt; } .panels { grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 8px; }
  .panels.one { grid-template-columns: minmax(0, 60%); } figure { padding: 8px; }
  .scroll { overflow: visible; border: 0; } table { font-size: 7pt; } th, td { padding: 2px 4px; white-space: normal; }
  thead th, td small, th small, caption, .tag, tr.reason td, .note { font-size: 6.5pt; } .tag { padding: 0 5px; }
  th button::after { content: none; } details::details-content { content-visibility: visible; height: auto; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
