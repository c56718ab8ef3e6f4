"""Writes the report of run.py: Markdown into docs/performance.md, one HTML file, or the JSON of --json.

usage: report.py RESULTS.json [--markdown docs/performance.md] [--html FILE] [--json]
"""

import argparse
import json
import sys

import figures
import peers as peers_of
import plots

BEGIN, END = "<!-- bench-peers: begin -->", "<!-- bench-peers: end -->"


def header(report):
    machine = report["machine"]
    foreign = [turn["foreign"] for peer in report["peers"] for turn in peer["turns"]
               if turn["foreign"] is not None and not peer["sleeps"]]
    shared = figures.median(foreign) or 0
    loud = sum(share > peers_of.FOREIGN_MAX for share in foreign)
    label = ""
    if report.get("quick"):
        label = "**QUICK RUN: few and short rounds. It shows that everything runs; its figures prove nothing.** "
    minutes = f" The whole took {report['minutes']:g} minutes." if report.get("minutes") else ""
    return (
        f"{label}Measured on {report['date']} by `scripts/bench-peers.sh`: {machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB, {machine['caches']}, Linux {machine['kernel']}"
        f"{', ' + machine['virtual'] if machine['virtual'] else ''}, transparent huge pages "
        f"{machine['huge_pages'] or 'unknown'}. {report['rounds']} of {report.get('rounds_wanted', report['rounds'])} "
        f"interleaved rounds ({peers_of.SLOW_ROUNDS_MAX} at most of those that sleep while they wait), {report['ms']:g} ms for each cell, "
        f"tables of {report['table_mib']} MiB, client on processor 0 and server on processor 1. During a turn other "
        f"programs took {shared:.1%} of the two processors (median); in {loud} of {len(foreign)} turns it stayed above "
        f"{peers_of.FOREIGN_MAX:.0%} after up to {peers_of.TRIES} tries.{minutes}"
    )


def table(columns, rows):
    lines = ["| " + " | ".join(columns) + " |", "| " + " | ".join("---" for _ in columns) + " |"]
    return lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]


def ratios(report):
    rows = []
    for w in figures.workloads(report):
        mine, theirs = w["mine"], w["theirs"]
        rows.append([
            f"{w['workload']} d{w['depth']}",
            f"{figures.rate(mine['per_s'])} ({figures.rate(mine['low'])}–{figures.rate(mine['high'])})",
            f"{figures.rate(theirs['per_s'])} ({figures.rate(theirs['low'])}–{figures.rate(theirs['high'])})",
            w["best_peer_name"], f"{w['ratio']:.2f}", w["goal"] if w["goal"] is not None else "", figures.verdict(w),
            f"{figures.micro(mine['p50_ns'])} / {figures.micro(theirs['p50_ns'])}",
            f"{figures.micro(mine['p99_ns'])} / {figures.micro(theirs['p99_ns'])}",
            " / ".join("–" if side["cpu_s"] is None else f"{side['cpu_s']:.3g}" for side in (mine, theirs)),
        ])
    return table(["workload", "reclane, requests/s (spread)", "best peer (spread)", "who", "ratio", "goal", "",
                  "p50 us, both", "p99 us, both", "CPU s per M rows, both"], rows)


def everybody(report, op):
    names = [peers_of.cell_name(op, rows, row_bytes, depth) for rows, row_bytes in peers_of.SHAPES
             for depth in peers_of.DEPTHS]
    rows = []
    for peer in report["peers"]:
        found = [figures.summary(peer, name) for name in names]
        if any(found):
            rows.append([peer["label"], *(figures.rate(one["per_s"]) if one else "–" for one in found)])
    return table([f"{op.upper()}, requests/s", *(name.split("_", 1)[1].replace("_", " ") for name in names)], rows)


def one_line(text):
    """Somebody else's words, which must not break the page."""
    return " ".join(str(text).split()).replace("|", "/").replace("`", "'").replace("<", "(").replace(">", ")")[:300]


def who(report):
    lines = []
    for peer in report["peers"]:
        said = f": {peer['note']}" if peer["note"] else ""
        if peer["reason"]:
            lines.append(f"- {peer['label']}: NOT RUN: {one_line(peer['reason'])}")
        else:
            failed = "; ".join(f"{cell} FAILED: {one_line(why)}" for cell, why in peer.get("failed", {}).items())
            lines.append(f"- {peer['label']}{said}{'; ' + failed if failed else ''}")
    return lines


def goals(report):
    return table(["what", "measured", "goal", ""], figures.other_goals(report))


def curve_tables(report):
    lines = []
    for curve in report["curves"] or []:
        lines += ["", f"**{curve['name']}** ({curve['cell']}); x: {curve['x_is']}", ""]
        rows = []
        for p in curve["points"]:
            if "reason" in p:
                rows.append([p["x"], one_line(p["reason"]), "", "", "", "", "", "", ""])
                continue
            rows.append([f"{p['x']:g}" if p["x"] < 1e6 else f"10^{len(str(p['x'])) - 1}",
                         f"{figures.rate(p['per_s'])} ({figures.rate(p['low'])}–{figures.rate(p['high'])})", figures.micro(p["p50_ns"]), figures.micro(p["p99_ns"]),
                         figures.micro(p["max_ns"]), p["open_ms"], f"{p['server_bytes'] / (1 << 20):.0f}",
                         f"{p['client_bytes'] / (1 << 20):.0f}", f"{p['round_ns']:.0f}" if p["round_ns"] else "–"])
        lines += table(["x", "requests/s (spread)", "p50 us", "p99 us", "max us", "client open ms", "server MiB", "client MiB",
                        "idle round ns"], rows)
        step = figures.largest_step(curve)
        if step:
            lines += ["", step]
    return lines


def markdown(report):
    lines = [header(report), "", "### Against the best peer", ""]
    lines += ratios(report)
    lines += ["", "### Other goals", "", *goals(report)]
    for op in figures.OPS:
        lines += ["", f"### All rates, {op.upper()}", "", *everybody(report, op)]
    lines += ["", "### Who was measured", "", *who(report)]
    if report["curves"]:
        lines += ["", "### Scaling of reclane alone", "",
                  "Memory is what each process has in RAM when the client is open, before tables are filled."]
        lines += curve_tables(report)
    return "\n".join(lines) + "\n"


def put_between(path, text):
    with open(path, encoding="utf-8") as file:
        old = file.read()
    before, _, rest = old.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        sys.exit(f"report.py: {path} has no lines '{BEGIN}' and '{END}'")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{before}{BEGIN}\n\n{text}\n{END}{after}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("results")
    parser.add_argument("--markdown")
    parser.add_argument("--html")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with open(arguments.results, encoding="utf-8") as file:
        report = json.load(file)
    if arguments.markdown:
        put_between(arguments.markdown, markdown(report))
    if arguments.html:
        with open(arguments.html, "w", encoding="utf-8") as file:
            file.write(plots.page(report, header(report), who(report)))
    if arguments.json:
        keys = ("workload", "depth", "reclane", "best_peer", "best_peer_name", "ratio", "goal")
        print(json.dumps({"workloads": [{key: w[key] for key in keys} for w in figures.workloads(report)]}))


if __name__ == "__main__":
    main()
