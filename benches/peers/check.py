"""Checks run.py and report.py on programs that only print: what they say, and what they must survive.

usage: check.py     its last line is "N passed, N failed"
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import figures
import peers as peers_of
import report as report_of

HERE = os.path.dirname(os.path.abspath(__file__))

# A program in place of a measured one: every cell at a rate of its own; --only as rows.h has it.
PROGRAM = """#!/usr/bin/env python3
import json, sys
only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
print("a library's own line")
print("{not ours}")
print(json.dumps({"open_ms": 1.5, "server_bytes": 1 << 20, "client_bytes": 1 << 21, "round_ns": 60.0}))
for op in ("get", "put", "update"):
    for rows, row_bytes in ((1, 64), (32, 512), (512, 128)):
        for depth in (1, 8, 32):
            name = f"{op}_{rows}x{row_bytes}_d{depth}"
            if not (name.endswith(only[:-1]) if only.endswith("$") else only in name):
                continue
            print(json.dumps({"op": op, "rows": rows, "row_bytes": row_bytes, "depth": depth, "p50_ns": 500, "p99_ns": 900,
                              "per_s": RATE * depth, "mean_per_s": RATE * depth, "max_ns": 5000, "requests": 1000,
                              "cpu_client_ns": 1000000, "cpu_server_ns": 1000000}))
EXTRA
print(json.dumps({"foreign": 0.0}))
"""


def program(folder, name, rate, extra=""):
    path = os.path.join(folder, "bin", name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(PROGRAM.replace("RATE", str(rate)).replace("EXTRA", extra))
    os.chmod(path, 0o755)


def lacks(folder, name, why):
    with open(os.path.join(folder, "missing", name), "w", encoding="utf-8") as file:
        file.write(why + "\n")


class Everything(unittest.TestCase):
    """From programs to JSON, Markdown and HTML, once; then what these say."""

    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory()
        folder = cls.place.name
        os.mkdir(os.path.join(folder, "bin"))
        os.mkdir(os.path.join(folder, "missing"))
        program(folder, "reclane_rows", 1000)
        program(folder, "ucx_rows_debian", 500)
        program(folder, "redis_rows", 0, 'print("so it goes", file=sys.stderr); sys.exit(3)')
        program(folder, "mooncake_rows", 7, 'print(json.dumps({"failed": "get_1x64_d8", "reason": "a <b>pipe</b> | broke"}))')
        lacks(folder, "ucx_rows_wheel", "'pip install libucx' failed: no | network")
        lacks(folder, "nixl_rows", "no wheel for this processor")
        cls.results = os.path.join(folder, "results.json")
        cls.ran = subprocess.run(
            [sys.executable, "-B", os.path.join(HERE, "run.py"), "--work", folder, "--out", cls.results, "--rounds", "2",
             "--ms", "1", "--peers", "reclane,ucx1.13_am_shm,ucx1.22_am_shm,redis,mooncake,nixl", "--curves", "--curve-repeats", "1",
             "--quick"],
            capture_output=True, text=True, check=False)
        cls.page, cls.document = os.path.join(folder, "page.html"), os.path.join(folder, "document.md")
        with open(cls.document, "w", encoding="utf-8") as file:
            file.write(f"before\n{report_of.BEGIN}\nold\n{report_of.END}\nafter\n")
        cls.said = subprocess.run(
            [sys.executable, "-B", os.path.join(HERE, "report.py"), cls.results, "--html", cls.page, "--markdown",
             cls.document, "--json"], capture_output=True, text=True, check=False)

    @classmethod
    def tearDownClass(cls):
        cls.place.cleanup()

    def text(self, path):
        with open(path, encoding="utf-8") as file:
            return file.read()

    def test_it_ran(self):
        self.assertEqual((self.ran.returncode, self.said.returncode), (0, 0), self.ran.stderr + self.said.stderr)

    def test_json_has_the_schema_and_nothing_else(self):
        said = json.loads(self.said.stdout)
        self.assertEqual(list(said), ["workloads"])
        keys = {"workload", "depth", "reclane", "best_peer", "best_peer_name", "ratio", "goal"}
        self.assertTrue(all(set(one) == keys for one in said["workloads"]))
        wanted = {(op, shape, depth) for op in figures.OPS for shape in ("1x64", "32x512", "512x128") for depth in (1, 8, 32)}
        got = {(*one["workload"].rsplit("_", 1), one["depth"]) for one in said["workloads"]}
        self.assertLessEqual(wanted, got)
        first = next(one for one in said["workloads"] if (one["workload"], one["depth"]) == ("get_1x64", 8))
        self.assertEqual((first["reclane"], first["best_peer"], first["ratio"], first["goal"]), (8000, 4000, 2.0, 1.7))
        self.assertTrue(first["best_peer_name"].startswith("UCX 1.13 am shm"))

    def test_who_could_not_run_is_named_with_the_reason(self):
        text = self.text(self.document)
        self.assertIn("NOT RUN: 'pip install libucx' failed: no / network", text)
        self.assertIn("NOT RUN: no wheel for this processor", text)
        self.assertRegex(text, r"Redis, Unix socket: NOT RUN: failed twice; the last time: exit status 3: so it goes")
        self.assertIn("get_1x64_d8 FAILED: a (b)pipe(/b) / broke", text)

    def test_the_document_keeps_what_is_around_and_its_tables_are_whole(self):
        text = self.text(self.document)
        self.assertTrue(text.startswith("before\n") and text.endswith("after\n") and "old" not in text)
        self.assertIn("QUICK RUN", text)
        self.assertIn("2 of 2 interleaved rounds", text)
        width = None
        for line in text.splitlines():
            columns = line.count("|") if line.startswith("|") else None
            if columns is not None and width is not None:
                self.assertEqual(columns, width, line)
            width = columns

    def test_the_page_needs_no_network_and_shows_the_curves(self):
        text = self.text(self.page)
        self.assertEqual(re.findall(r"(?:src|href)\s*=|https?://|@import|url\(", text), [])
        for name, *_ in __import__("curves").all_points():
            self.assertIn(f"<b>{name}</b>", text)
        self.assertNotIn("<b>pipe</b>", text)

    def test_curves_have_every_point(self):
        with open(self.results, encoding="utf-8") as file:
            curves = json.load(file)["curves"]
        for curve, (name, _, _, points) in zip(curves, __import__("curves").all_points()):
            self.assertEqual([p["x"] for p in curve["points"]], [x for x, _ in points], name)


class Alone(unittest.TestCase):
    """Single decisions."""

    def test_lines_that_are_not_ours_are_passed_over(self):
        self.assertIsNone(peers_of.figures_of("2026 INFO"))
        self.assertIsNone(peers_of.figures_of("{oh"))
        self.assertIsNone(peers_of.figures_of(""))
        self.assertEqual(peers_of.figures_of('{"foreign":0.5}'), {"foreign": 0.5})

    def test_one_failure_in_the_only_round_is_a_reason(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "bin"))
            os.mkdir(os.path.join(folder, "missing"))
            program(folder, "redis_rows", 10)
            program(folder, "mooncake_rows", 0, 'sys.exit("no luck")')
            out = os.path.join(folder, "results.json")
            subprocess.run([sys.executable, "-B", os.path.join(HERE, "run.py"), "--work", folder, "--out", out, "--rounds",
                            "1", "--ms", "1", "--peers", "redis,mooncake"], capture_output=True, check=True)
            with open(out, encoding="utf-8") as file:
                reasons = {peer["name"]: peer["reason"] for peer in json.load(file)["peers"]}
            self.assertEqual(reasons, {"redis": None, "mooncake": "failed: exit status 1: no luck"})

    def test_verdicts(self):
        of = lambda ratio, goal: figures.verdict({"ratio": ratio, "goal": goal})
        self.assertEqual([of(1.7, 1.7), of(1.69, 1.7), of(0.95, 1.0), of(0.89, 1.0), of(2, None)],
                         ["met", "NOT met", "parity", "NOT met", ""])

    def test_the_largest_step_of_a_curve_is_named_unless_it_is_noise(self):
        point = lambda x, low, rate, high: {"x": x, "low": low, "per_s": rate, "high": high}
        of = lambda *points: figures.largest_step({"points": [*points, {"x": 9, "reason": "no time"}]})
        self.assertEqual(of(point(1, 90, 100, 110), point(2, 95, 100, 105), point(4, 40, 50, 60)),
                         "largest step: from 2 to 4, to 0.50 of the rate")
        self.assertTrue(of(point(1, 10, 100, 110), point(2, 50, 60, 105)).endswith("within the spread of the runs"))
        self.assertIsNone(of(point(1, 1, 1, 1)))

    def test_a_program_that_hangs_is_ended_and_named(self):
        with self.assertRaisesRegex(RuntimeError, "did not end within 0.2 s"):
            peers_of.run(["sleep", "60"], {}, 0.2)

    def test_no_time_means_one_round_and_no_curves(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "bin"))
            os.mkdir(os.path.join(folder, "missing"))
            program(folder, "reclane_rows", 10)
            program(folder, "redis_rows", 10)
            out = os.path.join(folder, "results.json")
            ran = subprocess.run(
                [sys.executable, "-B", os.path.join(HERE, "run.py"), "--work", folder, "--out", out, "--rounds", "9", "--ms",
                 "1", "--peers", "reclane,redis", "--curves", "--minutes", "0"], capture_output=True, text=True, check=False)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            with open(out, encoding="utf-8") as file:
                said = json.load(file)
            self.assertEqual((said["rounds"], said["rounds_wanted"]), (1, 9))
            reasons = {peer["name"]: peer["reason"] for peer in said["peers"]}
            self.assertEqual((reasons["reclane"], reasons["redis"]), (None, "the time was up before its first turn"))
            self.assertTrue(all("time was up" in p["reason"] for curve in said["curves"] for p in curve["points"]))


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed} passed, {failed} failed")
    sys.exit(0 if failed == 0 else 1)
