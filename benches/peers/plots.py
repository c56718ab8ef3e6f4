"""One HTML file with the plots, drawn as SVG: nothing is fetched when it is opened."""

import html
import math

import figures
import peers as peers_of

COLOURS = {True: "#0b6e4f", False: "#8a9ba8"}
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1080px; margin: 2rem auto; padding: 0 1rem; color: #1c2b33 }
svg { width: 100%; height: auto } text { font: 12px system-ui, sans-serif; fill: #1c2b33 }
.grid { stroke: #d7dee3; stroke-width: 1 } .line { fill: none; stroke: #0b6e4f; stroke-width: 2 }
table { border-collapse: collapse; font-size: 13px } td, th { border: 1px solid #d7dee3; padding: .2rem .5rem; text-align: right }
td:first-child, th:first-child { text-align: left } .plots { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem }
@media (prefers-color-scheme: dark) { body, text { color: #e3eaee; fill: #e3eaee; background: #14191c } .grid { stroke: #37434a } td, th { border-color: #37434a } }
"""


def bars(report, cell):
    """Rates of everybody in one cell, on a logarithmic scale, with the spread as a line."""
    found = [(peer, figures.summary(peer, cell)) for peer in report["peers"]]
    found = sorted(((p, s) for p, s in found if s), key=lambda one: -one[1]["per_s"])
    if not found:
        return ""
    low = min(s["low"] for _, s in found) / 1.5
    high = max(s["high"] for _, s in found) * 1.05
    left, width, step = 250, 720, 20
    place = lambda value: left + width * math.log(max(value, low) / low) / math.log(high / low)
    parts = []
    for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1):
        x = place(10 ** power)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{len(found) * step}"/>'
                     f'<text x="{x:.1f}" y="{len(found) * step + 14}" text-anchor="middle">{figures.rate(10 ** power)}</text>')
    for i, (peer, s) in enumerate(found):
        y = i * step
        parts.append(f'<text x="{left - 6}" y="{y + 14}" text-anchor="end">{html.escape(peer["label"])}</text>'
                     f'<rect x="{left}" y="{y + 4}" width="{place(s["per_s"]) - left:.1f}" height="12" fill="{COLOURS[peer["is_own"]]}"/>'
                     f'<line x1="{place(s["low"]):.1f}" x2="{place(s["high"]):.1f}" y1="{y + 10}" y2="{y + 10}" stroke="#d1495b" stroke-width="2"/>'
                     f'<text x="{place(s["high"]) + 6:.1f}" y="{y + 14}">{figures.rate(s["per_s"])}</text>')
    return f'<svg viewBox="0 0 1060 {len(found) * step + 22}" role="img" aria-label="rates of {cell}">{"".join(parts)}</svg>'


def curve(one, what, label):
    """One figure of a curve over its x; logarithmic where x spans decades."""
    points = [(p["x"], p[what], p.get("low"), p.get("high")) for p in one["points"] if p.get(what)]
    if len(points) < 2:
        return ""
    xs = [x for x, *_ in points]
    is_log = min(xs) > 0 and max(xs) / min(xs) >= 8
    scale = math.log if is_log else float
    first, last = scale(min(xs)), scale(max(xs))
    # Rates have their spread.
    spread = what == "per_s"
    top = max(max(y, high or 0) if spread else y for _, y, _, high in points) * 1.1
    across = lambda x: 70 + 420 * (scale(x) - first) / ((last - first) or 1)
    up = lambda y: 190 - 170 * y / top
    show = figures.rate if what == "per_s" else figures.micro if what.endswith("ns") else lambda y: f"{y:.3g}"
    parts = [f'<line class="grid" x1="70" x2="490" y1="{up(top * f):.1f}" y2="{up(top * f):.1f}"/>'
             f'<text x="64" y="{up(top * f) + 4:.1f}" text-anchor="end">{show(top * f)}</text>' for f in (0, 0.5, 1)]
    parts += [f'<text x="{across(x):.1f}" y="208" text-anchor="middle">{x:g}</text>' for x in xs]
    path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y, *_ in points)
    parts.append(f'<polyline class="line" points="{path}"/>')
    parts += [f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="3" fill="#0b6e4f"/>' for x, y, *_ in points]
    if spread:
        parts += [f'<line x1="{across(x):.1f}" x2="{across(x):.1f}" y1="{up(low):.1f}" y2="{up(high):.1f}" stroke="#d1495b"/>'
                  for x, _, low, high in points if low and high]
    return (f'<figure><svg viewBox="0 0 510 216" role="img" aria-label="{one["name"]}">{"".join(parts)}</svg>'
            f'<figcaption><b>{html.escape(one["name"])}</b>: {label}, {one["cell"]}; x: {html.escape(one["x_is"])}</figcaption></figure>')


def ratio_table(report):
    rows = ["<tr><th>workload</th><th>depth</th><th>reclane</th><th>best peer</th><th>who</th><th>ratio</th><th>goal</th><th></th></tr>"]
    for w in figures.workloads(report):
        rows.append("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in (
            w["workload"], w["depth"], figures.rate(w["reclane"]), figures.rate(w["best_peer"]), w["best_peer_name"],
            f"{w['ratio']:.2f}", w["goal"] if w["goal"] is not None else "", figures.verdict(w))) + "</tr>")
    return f"<table>{''.join(rows)}</table>"


def goal_table(report):
    rows = ["<tr><th>what</th><th>measured</th><th>goal</th><th></th></tr>"]
    rows += ["<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in goal) + "</tr>" for goal in figures.other_goals(report)]
    return f"<table>{''.join(rows)}</table>"


def page(report, said, who):
    parts = ["<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
             "<title>reclane and its peers</title>", f"<style>{STYLE}</style>", "<h1>reclane and its peers</h1>",
             f"<p>{html.escape(said)}</p>", ratio_table(report), "<h2>Other goals</h2>", goal_table(report),
             "<p>Bars are medians of requests per second, red lines the spread over the rounds. The scale is logarithmic.</p>"]
    for op in figures.OPS:
        for rows, row_bytes in peers_of.SHAPES:
            for depth in peers_of.DEPTHS:
                drawn = bars(report, peers_of.cell_name(op, rows, row_bytes, depth))
                if drawn:
                    parts.append(f"<h3>{op.upper()} {rows} x {row_bytes} bytes, depth {depth}</h3>{drawn}")
    parts.append("<h2>Who was measured</h2><ul>" + "".join(f"<li>{html.escape(line[2:])}</li>" for line in who) + "</ul>")
    if report["curves"]:
        parts.append("<h2>Scaling of reclane alone</h2><div class=plots>")
        for one in report["curves"]:
            if one["name"].startswith("start_up"):
                parts.append(curve(one, "open_ms", "ms to open the client"))
            elif one["name"] == "idle_slots":
                parts.append(curve(one, "round_ns", "us of an idle round of the scan"))
                parts.append(curve(one, "p50_ns", "p50 in us"))
            else:
                parts.append(curve(one, "per_s", "requests per second"))
        parts.append("</div>")
    return "\n".join(parts) + "\n"
