"""The report: one page that is whole, safe, the same each time, and readable by all."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape
from rich.console import Console
from typer.testing import CliRunner

import whim
from tests import sample_results as samples
from whim.cli.app import app
from whim.cli.report import report
from whim.errors import InvalidInputError
from whim.evaluate.intervals import gain, mean_interval
from whim.evaluate.simulation_result import columns, finite
from whim.experiments import Curve, ExperimentResult, Figure, Table
from whim.report import headline_table, read_folder, save_figure, write_report
from whim.report.conclusion import SENTENCES, brief, conclude, sentences
from whim.report.figures import draw, svg
from whim.report.page import report_page
from whim.report.style import DARK, LIGHT, colour_name, dashes, slots
from whim.report.ticks import number, ticks

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """Reads a page, minds that tags close in order, and keeps what tests ask for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), (tag, attrs)
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data

    def all(self, name: str) -> list[str]:
        return [
            value or "" for _, attrs in self.tags for key, value in attrs.items() if key == name
        ]


@pytest.fixture(scope="module")
def text() -> str:
    return report_page(samples.every())


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def finding(**fields: object) -> ExperimentResult:
    plain: dict[str, object] = {
        "id": "a/b", "title": "A", "summary": "", "command": "", "settings": {},
    }  # fmt: skip
    return ExperimentResult(**{**plain, **fields})  # type: ignore[arg-type]


def test_the_page_is_whole_and_its_ids_are_its_own(text: str, page: Page) -> None:
    ids = page.all("id")
    assert len(ids) == len(set(ids))
    linked = [href for href in page.all("href") if href != ""]
    assert linked
    assert all(href.startswith("#") for href in linked)
    named = {href[1:] for href in linked} | set(" ".join(page.all("aria-labelledby")).split())
    named |= set(re.findall(r"url\(#([^)]+)\)", text))
    assert named <= set(ids)


def test_the_page_asks_nothing_of_the_outside(text: str, page: Page) -> None:
    assert not re.search(r"https?:|//\w|@import|url\((?!#)", text)
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in page.tags}
    assert not page.all("src")


def test_every_text_is_escaped(text: str, page: Page) -> None:
    odd = samples.odd()
    said = [odd.id, odd.title, odd.summary, odd.command, odd.warning, *odd.differences]
    said += [t.title for t in odd.tables] + [f.title for f in odd.figures]
    said += [cell for t in odd.tables for row in t.rows for cell in row] + [odd.headline[0][0]]
    for words in said:
        assert escape(words) in text, words
        assert words in page.words, words
    assert not {"b", "i", "script"} & {tag for tag, _ in page.tags}


def test_the_same_findings_give_the_same_bytes(text: str, tmp_path: Path) -> None:
    for one in samples.every():
        one.save(tmp_path / f"{re.sub('[^a-z]', '', one.id)}.json")
    code = "import sys, whim.report as r; r.write_report(r.read_folder(sys.argv[1]), sys.argv[2])"
    away = tmp_path / "deep" / "page.html"
    environment = {**os.environ, "PYTHONHASHSEED": "7", "SOURCE_DATE_EPOCH": "1"}
    subprocess.run([sys.executable, "-c", code, tmp_path, away], check=True, env=environment)
    assert away.read_text("utf-8") == text


def test_the_reader_s_own_matplotlib_settings_change_nothing(text: str) -> None:
    mine = {"font.size": 40.0, "svg.hashsalt": "mine", "lines.linewidth": 9.0, "axes.grid": True}
    with matplotlib.rc_context(mine):
        assert report_page(samples.every()) == text
        assert all(matplotlib.rcParams[key] == value for key, value in mine.items())


def test_the_conclusion_comes_first_then_headlines_contents_and_experiments(text: str) -> None:
    told = samples.every()
    order = [text.index(f'id="{at}"') for at in ("conclusion", "headlines", "contents")]
    order += [text.index(f">{escape(one.title)} <code>") for one in told]
    assert order == sorted(order)
    assert text.index("<svg") < text.index('id="headlines"')
    assert f"Generated by whim {whim.__version__}</p>" in text
    dated = report_page(told[2:3], title="T & T", date="1 May")
    assert f"whim {whim.__version__} · 1 May</p>" in dated
    assert "<title>T &amp; T</title>" in dated


def test_a_warning_stands_above_every_table_and_figure(text: str) -> None:
    yahoo = samples.yahoo()
    in_full = re.search(r'<p class="warning" id="([^"]+)".*', text.partition(yahoo.title)[2])
    assert in_full is not None
    assert text.count(escape(yahoo.warning)) == 1
    assert escape(yahoo.warning) in in_full[0]
    blocks = re.findall(r'<(?:div class="table"|figure).*?</(?:table|figure)>', text, re.S)
    warned = [block for block in blocks if f'<a href="#{in_full[1]}">' in block]
    assert len(warned) == len(yahoo.tables) + len(yahoo.figures)
    for block in warned:
        drawn = [block.index(tag) for tag in ("<table", 'class="plot"') if tag in block]
        assert block.index(f">{escape(brief(yahoo.warning))}</a>") < min(drawn)
        assert text.index(in_full[0]) < text.index(block)
    assert text.count("⚠</a>") == len(yahoo.headline) + len(samples.odd().headline)


def test_all_that_findings_say_is_on_the_page(text: str, page: Page) -> None:
    for words in ("policies.PSLinUCB.window", "It took 4 minutes.", "It took 2.3 hours."):
        assert words in page.words
    for one in samples.every():
        assert f"<code>{escape(one.command)}</code></pre>" in text
        for words in (one.summary, *one.differences, *(f.caption for f in one.figures)):
            assert words in page.words.replace("\u00a0%", " %")  # kept on one line
    assert text.count("<details>") == len(samples.every())  # settings


def said(results: list[ExperimentResult]) -> str:
    return " ".join("".join(part for part, _ in one) for one in conclude(results).sentences)


def quick(**fields: object) -> ExperimentResult:
    return finding(command="whim paper a/b --quick", **fields)


def test_a_page_concludes_from_its_results() -> None:
    told = samples.every()
    assert said(told) == (
        f"{told[0].summary} 2 of 3 targets are reached; missed: synchronous: 38 %. 2 of 4 "
        "results are marked ⚠: “A made-up stand-in replaced the Yahoo! log” or "
        '“Mind the <gap> & "quotes"”.'
    )
    met, missed = ("one", True), ("other", False)
    two = [finding(summary="A. B.", targets=[met]), finding(summary="C. D.", targets=[met])]
    assert said(two) == "A. C. All 2 targets are reached."
    assert said([finding(summary="A. B."), quick(summary="C.")]) == (
        "A. C. 1 of 2 results are of quick runs, with few repetitions."
    )
    assert said([quick(targets=[missed] * 5), quick()]) == (
        "0 of 5 targets are reached; missed: other; other; other; and 2 others. "
        "All 2 results are of quick runs, with few repetitions."
    )
    assert said([finding(), finding(targets=[met])]) == "The one target is reached."
    assert said([finding(summary="A. B.", targets=[missed])]) == "A. B."  # its own summary
    assert said([finding(summary="A. B. C. D.")]) == "A. B. C."  # the rest is folded
    assert conclude([]) == ([], None)
    assert "Conclusion" in report_page([])


def test_missed_targets_lead_to_where_they_were_missed(text: str) -> None:
    plain = text.replace("\u00a0", " ")
    assert '<a href="#x-synthetic-disjoint">synchronous: 38 %</a>' in plain
    section = plain[plain.index('<h2 id="x-synthetic-disjoint">') :].partition("<details")
    assert '<p class="missed">Missed: synchronous: 38 %.</p>' in section[0]
    assert "<li>reached: asynchronous: half of the regret saved</li>" in section[2]
    assert text.count('class="missed"') == 1
    alone = report_page([samples.synthetic()])
    assert alone.index('class="missed"') < alone.index("<svg")


def test_the_figure_of_the_conclusion() -> None:
    drawn = samples.synthetic().figures[:1]
    plain = finding(figures=drawn)
    warned = finding(figures=drawn, warning="Mind.")
    main = finding(id="beyond/power", figures=drawn, warning="Mind.")
    assert conclude([finding(), warned, plain]).lead == 2
    assert conclude([warned, plain, main]).lead == 2
    assert conclude([finding(), warned]).lead == 1
    assert conclude([finding(), finding(id="beyond/power")]).lead is None
    for results in ([warned, plain, main], [main]):  # drawn once, with its warning
        page = report_page(results)
        assert page.count('id="x-beyond-power-figure-1"') == 1
        assert page.count('id="x-beyond-power-warning"') == 1
        assert page.index("<svg") < page.index('id="x-beyond-power"')


def test_what_is_folded_is_counted(text: str) -> None:
    for words in (
        "More: 1 figure, 2 targets, 2 differences from the paper, the command and 14 settings",
        "More: 1 figure, 1 difference from the paper, the command and 4 settings",
        "More: 1 target, the command and 1 setting",
        "More: 2 tables, 5 figures, 1 difference from the paper, the command and 4 settings",
    ):
        assert f"<summary>{words}</summary>" in text, words
    shown = re.sub(r'<details class="more">.*?</section>', "", text, flags=re.S)
    for one in samples.every():
        for parts in (one.tables, one.figures):
            assert [escape(part.title) in shown for part in parts] == [
                n == 0 for n in range(len(parts))
            ]
    long = report_page([finding(summary="One. Two. Three. Four."), finding(seconds=3)])
    assert "<summary>More: the rest of the summary</summary>\n<p>Four.</p>" in long
    assert "<summary>More: the time it took</summary>" in long


def test_headings_are_in_order(text: str) -> None:
    for page in (text, report_page([samples.theorem()]), report_page([samples.yahoo()])):
        levels = [int(tag[1]) for tag, _ in Page(page).tags if re.fullmatch("h[1-6]", tag)]
        assert levels[:2] == [1, 2]
        assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
        assert levels.count(1) == 1


def test_summaries_are_short_and_sentences_told_apart() -> None:
    assert all(len(sentences(one.summary)) <= SENTENCES for one in samples.every())
    assert sentences("T^0.5 · log T, cf. p. 3. δ = 0.3! “Why”? 9 of 10 as Li et al. 2010.") == [
        "T^0.5 · log T, cf. p. 3.", "δ = 0.3!", "“Why”?", "9 of 10 as Li et al. 2010.",
    ]  # fmt: skip
    assert sentences("  ") == []


def test_tables() -> None:
    rows = [["LinUCB", "1,000", "<0.1", "no"], ["PSLinUCB", "-2.5 [1, 2]", "–", "7"]]
    table = Table("T", ["policy", "regret", "p", "note"], rows, highlight=[1])
    text = report_page([finding(tables=[table])])
    assert '<th scope="col" class="number">regret</th>' in text
    assert '<td class="number">&lt;0.1</td><td>no</td>' in text
    assert '<tr class="own"><th scope="row">PSLinUCB</th>' in text
    assert '-2.5 <span class="whole">[1, 2]</span></td>' in text
    assert '<th scope="col">note</th>' in text


def test_a_bare_finding_has_no_empty_parts() -> None:
    text = report_page([finding(), finding()])
    assert Page(text).all("id") == ["conclusion", "contents", "x-a-b", "x-a-b--2"]
    for absent in ("<ul", "<pre", "<details", "<figure", "<table", 'class="warning'):
        assert absent not in text.partition("<body>")[2]


@pytest.mark.parametrize(
    "figure", [f for one in samples.every() for f in one.figures], ids=lambda f: f.title
)
def test_every_figure_is_drawn_in_colours_of_the_page(figure: Figure) -> None:
    labels = slots([figure])
    drawn = svg(figure, prefix="p", labels=labels)
    assert Page(drawn).tags[0][0] == "svg"
    assert not re.search(r"#[0-9a-fA-F]{6}", drawn)
    assert "<style" not in drawn
    words = re.findall(r"<text style=\"([^\"]*)\"", drawn)
    assert words
    assert all("fill: var(--tick)" in style for style in words)
    for curve in figure.curves:
        if any(math.isfinite(y) and (y > 0 or not figure.y_log) for y in curve.y):
            assert f"stroke: var(--{colour_name(labels[curve.label])})" in drawn


def test_gaps_are_gaps_and_a_lone_point_is_marked() -> None:
    x = np.arange(40.0).tolist()
    y = [1.0] * 10 + [math.nan] * 4 + [2.0] + [math.nan, math.inf] + [3.0] * 23
    low, high = [v - 1 for v in y], [v + 1 for v in y]
    axes = draw(Figure("gaps", "x", "y", [Curve("a", x, y, low, high)])).axes[0]
    assert axes.lines[0].get_markevery() == [14]
    band, bar = axes.collections
    assert len(band.get_paths()) >= 2
    np.testing.assert_array_equal(bar.get_paths()[0].vertices, [[14, 1], [14, 3]])
    drawn = svg(Figure("gaps", "x", "y", [Curve("a", x, y)]), prefix="p")
    [line] = re.findall(r'<path d="([^"]*)"[^>]*fill: none; stroke: var\(--curve-1\)', drawn)
    assert sum(" L " in part for part in line.split("M")) == 2
    whole = draw(Figure("whole", "x", "y", [Curve("a", x, [1.0] * 40)])).axes[0]
    assert whole.lines[0].get_marker() == "None"


def test_curves_end_where_their_numbers_say() -> None:
    x = np.linspace(0, 50_000, 50_001)
    figure = Figure("long", "x", "y", [Curve("a", x.tolist(), (x**2).tolist())])
    axes = draw(figure).axes[0]
    line = axes.lines[0]
    assert len(line.get_xdata()) < 1000
    assert (line.get_xdata()[0], line.get_xdata()[-1]) == (0, 50_000)
    np.testing.assert_array_equal(line.get_ydata(), np.asarray(line.get_xdata()) ** 2)
    assert len(svg(figure, prefix="p")) < 30_000
    low, high = axes.get_ylim()
    assert low == 0
    assert high > 50_000**2


def test_log_axes_leave_out_what_has_no_logarithm() -> None:
    curve = Curve("a", [0.0, 1.0, 10.0], [5.0, -1.0, 100.0], [0.0, -2.0, 0.0], [6.0, 2.0, 200.0])
    axes = draw(Figure("log", "x", "y", [curve], x_log=True, y_log=True)).axes[0]
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert axes.get_xlim()[0] > 0.5
    assert 0 < axes.get_ylim()[0] < 100
    none = draw(Figure("log", "x", "y", [Curve("a", [1.0], [-1.0])], y_log=True)).axes[0]
    assert none.get_yscale() == "linear"


def test_words_of_a_drawing_for_a_file() -> None:
    figure = samples.odd().figures[2]
    drawing = draw(figure)
    assert drawing.axes[0].get_title(loc="left") == figure.title
    assert drawing.axes[0].get_ylabel() == figure.y_label
    assert [t.get_text() for t in drawing.legends[0].get_texts()] == ["zeros"]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_legend_covers_no_curve(place: int) -> None:
    figure = [*samples.odd().figures[:2], samples.regret_figure("r")][place]
    drawing = draw(figure)
    drawing.draw_without_rendering()
    legend = drawing.legends[0].get_window_extent()
    assert legend.y1 <= drawing.axes[0].get_window_extent().y0
    assert legend.x0 >= 0
    assert legend.x1 <= drawing.bbox.x1


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_files_of_one_figure(kind: str, tmp_path: Path) -> None:
    figure = samples.theorem().figures[0]
    first, second = tmp_path / f"1.{kind}", tmp_path / f"2.{kind}"
    save_figure(figure, first)
    save_figure(figure, second)
    assert first.read_bytes() == second.read_bytes()
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[kind]
    assert first.read_bytes().startswith(start)


def test_wrong_figures_are_named() -> None:
    for curve, words in (
        (Curve("a", [1.0, 2.0], [1.0]), "y of curve 'a' of figure 'F' must have 2 values"),
        (Curve("a", [1.0], [1.0], low=[0.0]), "high of curve 'a' of figure 'F' must have 1"),
        (Curve("a", [1.0], [1.0], style="dots"), "style of curve 'a' of figure 'F' must be one"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            draw(Figure("F", "x", "y", [curve]))
    with pytest.raises(InvalidInputError, match="path must end in"):
        save_figure(samples.theorem().figures[0], Path("figure.gif"))


def test_without_matplotlib_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(whim.errors.WhimError, match=r"pip install 'whim-bandits\[plot\]'"):
        draw(samples.theorem().figures[0])
    assert "A <code>" in report_page([finding(), finding()])


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abcdefghijkl"), st.booleans()), max_size=12), max_size=5
    )
)
def test_labels_keep_their_looks_and_never_share_one(panels: list[list[tuple[str, bool]]]) -> None:
    figures = [
        Figure("f", "x", "y", [
            Curve(label, [0.0], [0.0], style="reference" if grey else "line")
            for label, grey in dict(panel).items()
        ])
        for panel in panels
    ]  # fmt: skip
    found = slots(figures)
    policies = {c.label for f in figures for c in f.curves if c.style == "line"}
    for figure in figures:
        own = [found[c.label] for c in figure.curves if c.label in policies]
        lines = [found[c.label] for c in figure.curves if c.style == "line"]
        assert len(set(lines)) == len(lines)
        assert all(slot >= 0 for slot in own)
        if len(policies) <= 6:
            assert len({colour_name(slot) for slot in own}) == len(own)
    assert all(found[label] >= 0 for label in policies)


def test_one_label_one_colour_through_a_report(text: str) -> None:
    shown: dict[str, set[str]] = {}
    for swatch, label in re.findall(r'class="swatch"[^>]*>(.*?)</svg><span>(.*?)</span>', text):
        shown.setdefault(label, set()).update(re.findall(r"var\(--([\w-]+)\)", swatch))
    assert len(shown["PSLinUCB"]) == 1
    assert all(len(colours) == 1 for colours in shown.values())
    assert shown["PSLinUCB"] != shown["LinUCB"]
    assert dashes(0) == ()
    assert dashes(6) != ()


@pytest.mark.parametrize(
    ("limits", "log", "labels"),
    [
        ((0, 20_400), False, ["0", "5,000", "10,000", "15,000", "20,000"]),
        ((-1.1, 1.1), False, ["−1.0", "−0.5", "0.0", "0.5", "1.0"]),
        ((0.0471, 0.0538), False, ["0.048", "0.050", "0.052"]),
        ((900, 1.1e6), True, ["1,000", "10,000", "100,000", "1,000,000"]),
        ((1e-6, 2e-3), True, ["10⁻⁶", "10⁻⁵", "0.0001", "0.001"]),
        ((0.9, 60), True, ["1", "3", "10", "30"]),
        ((2, 8), True, ["2", "3", "4", "5", "6", "7", "8"]),
    ],
)
def test_ticks_are_readable(limits: tuple[float, float], log: bool, labels: list[str]) -> None:
    places, texts = ticks(*limits, log=log)
    assert texts == labels
    for place, said in zip(places, texts, strict=True):
        if "⁻" not in said:
            assert float(said.replace(",", "").replace("−", "-")) == pytest.approx(place)


def test_ticks_stand_on_the_values_of_a_log_axis_and_reach_the_page() -> None:
    assert ticks(45, 2200, log=True, values=[50, 100, 200, 500, 1000, 2000])[0] == [
        50, 100, 200, 500, 1000, 2000,
    ]  # fmt: skip
    measured = [5 / 3, 10 / 3, 20 / 3, 40 / 3]  # no labels such as 1.66667
    assert ticks(1.5, 15, log=True, values=measured)[1] == ["2", "5", "10"]
    assert number(123_456_789) == "1.23×10⁸"
    drawn = svg(samples.yahoo().figures[1], prefix="p")
    shown = re.findall(r">([^<>\n]+)</text>", drawn)
    assert shown == ["50", "100", "200", "500", "1,000", "2,000", "0.048", "0.050", "0.052"]


def test_ticks_have_room_beside_long_names_of_rows() -> None:
    names = ["the top item only", "cascade: up to the first click"]
    curve = Curve("a", [0.876, 0.982], [0.0, 1.0], [0.863, 0.98], [0.889, 0.985], "points")
    figure = Figure("rows", "share", "", [curve], rows=names)
    axes = draw(figure, bare=True).axes[0]
    axes.tick_params(labelsize=18)  # as in a narrow box
    axes.figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
    assert len(boxes) >= 2
    assert all(a.x1 + 4 < b.x0 for a, b in itertools.pairwise(boxes))


def luminance(colour: str) -> float:
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


def linear(colour: str) -> np.ndarray:
    part = np.array([int(colour[n : n + 2], 16) for n in (1, 3, 5)]) / 255
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def test_text_and_curves_stand_out_in_light_and_dark(text: str) -> None:
    blocks = re.findall(r":root \{(.*?)\}", text, re.S)
    values = [dict(re.findall(r"--([\w-]+): (#\w{6});", block)) for block in blocks]
    light = {**LIGHT, **next(v for v in values if v.get("ground") == "#ffffff")}
    dark = {**DARK, **next(v for v in values if v.get("ground") not in (None, "#ffffff"))}
    assert values[0] == LIGHT
    assert values[1] == DARK
    for colours in (light, dark):
        for ink in ("ink", "muted", "accent", "tick"):
            assert contrast(colours[ink], colours["ground"]) >= 4.5
        assert contrast(colours["ink"], colours["soft"]) >= 4.5
        assert contrast(colours["warn-ink"], colours["warn-ground"]) >= 4.5
        assert contrast(colours["warn-ink"], colours["ground"]) >= 4.5
        for name in LIGHT:
            if name.startswith("curve") or name == "reference":
                assert contrast(colours[name], colours["ground"]) >= 3


# Machado, Oliveira and Fernandes (2009): full severity, on linear RGB
SIGHT = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
         [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
         [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
         [0.004733, 0.691367, 0.303900]]
    ),
}  # fmt: skip


def lab(rgb: np.ndarray) -> np.ndarray:
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ np.clip(rgb, 0, 1) / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_differ_for_every_eye(sight: str, colours: dict[str, str]) -> None:
    seen = [
        lab(SIGHT[sight] @ linear(colour))
        for name, colour in colours.items()
        if name.startswith("curve")
    ]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 22


def test_the_terminal_s_table(capsys: pytest.CaptureFixture[str]) -> None:
    Console(width=80).print(headline_table(samples.every()))
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert max(map(len, printed.splitlines())) <= 80
    for words in ("52 % [48, 55]", "0.0541 [0.0535, 0.0547]", "[0.1, 0.2] <i>", "0.5 (Theorem 1)"):
        assert words in printed
    together = " ".join(printed.split())
    assert f"(!) {samples.yahoo().title}: {samples.yahoo().warning}" in together
    Console(width=30).print(headline_table(samples.every()))
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 30


def test_a_folder_is_read_in_the_report_s_order(tmp_path: Path) -> None:
    names = ["other/x", "beyond/theorem", "yahoo/table-1", "lastfm/ctr", "synthetic/hybrid"]
    for n, name in enumerate([*names, "synthetic/disjoint", "another/one"]):
        finding(id=name).save(tmp_path / f"{n}.json")
    assert [one.id for one in read_folder(tmp_path)] == [
        "synthetic/disjoint", "synthetic/hybrid", "lastfm/ctr", "yahoo/table-1",
        "beyond/theorem", "another/one", "other/x",
    ]  # fmt: skip


def test_the_command(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(report)

    def run(*arguments: object) -> str:
        found = CliRunner().invoke(app, [str(a) for a in arguments])
        if isinstance(found.exception, InvalidInputError):
            return str(found.exception)
        assert found.exit_code == 0, found.output
        return found.output.strip()

    folder = tmp_path / "found"
    assert "nothing there" in run(folder)
    folder.mkdir()
    assert "none there" in run(folder)
    samples.theorem().save(folder / "beyond-theorem.json")
    assert run(folder) == str(folder / "report.html")
    to = tmp_path / "new" / "my page.html"
    assert run(folder, "--to", to, "--date", "today") == str(to)
    assert " · today</p>" in to.read_text("utf-8")
    assert run(folder, "--to", folder).startswith("path must be a file that can be written")
    (folder / "broken.json").write_text('{"format": 1', "utf-8")
    assert run(folder).startswith(f"{folder / 'broken.json'} must be the result of an experiment")
    assert "a file" in run(folder / "broken.json")


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert write_report([finding(title="first")], path) == path
    bad = Figure("F", "x", "y", [Curve("a", [1.0], [])])
    with pytest.raises(InvalidInputError):
        write_report([finding(figures=[bad])], path)
    assert "first" in path.read_text("utf-8")
    blocked = tmp_path / "folder"
    blocked.mkdir()
    with pytest.raises(InvalidInputError, match="path must be a file"):
        write_report([finding()], blocked)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "page.html"]


def test_matplotlib_waits_until_something_is_drawn() -> None:
    code = "import sys, whim.report, whim.cli.report; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("logging", ["uniform", "propensity"])
def test_from_a_csv_file_to_a_page(logging: str, tmp_path: Path) -> None:
    """``whim convert``, ``whim replay --save``, ``whim report``; a result without matches too."""
    source, log, out = tmp_path / "a.csv", tmp_path / "a.whim", tmp_path / "out"
    rows = [f"{i % 3},{'ab'[i % 2]},{i % 2},0.5" for i in range(40)]
    source.write_text("x,arm,reward,p\n" + "\n".join(rows) + "\n")
    more = ["--propensity", "p"] if logging == "propensity" else []

    def whim_(*arguments: str | Path) -> str:
        done = CliRunner().invoke(app, [str(a) for a in arguments])
        assert done.exit_code == 0, done.output
        return done.output

    whim_("convert", source, "--to", log, "--context", "x", "--arm", "arm", "--reward", "reward",
          "--logging", logging, *more)  # fmt: skip
    whim_("replay", log, "--policy", "random", "--policy", "ucb", "--save", out, "--jobs", "1")
    assert whim_("report", out).strip() == str(out / "report.html")
    page = Page((out / "report.html").read_text())
    assert "Replay of a.whim" in page.words
    assert ("Estimates from all events" in page.words) == (logging == "propensity")


def test_from_a_simulation_to_a_page(tmp_path: Path) -> None:
    arguments = ["simulate", "--runs", "1", "--horizon", "50", "--policy", "ucb", "--jobs", "1"]
    assert CliRunner().invoke(app, [*arguments, "--save", str(tmp_path)]).exit_code == 0
    [result] = read_folder(tmp_path)
    assert result.tables[0].rows[0][0] == "ucb"
    assert "Regret in a simulated world" in Page(report_page([result])).words
    assert result.summary.startswith("The lowest regret over 1 run of 50 steps is that of ucb")
    assert len(sentences(result.summary)) <= SENTENCES


def saved_run(folder: Path, settings: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """The summary of a saved run with these rows; the regret of its runs is as they say."""
    polars = pytest.importorskip("polars")
    labels = [row["policy"] for row in rows]
    settings = {"policies": dict.fromkeys(labels, "UCB()"), **settings}
    (folder / "result.json").write_text(json.dumps({"settings": settings, "policies": rows}))
    if "log" in settings:
        points = {"policy": labels, **dict.fromkeys(("share", "ctr", "ctr_low", "ctr_high"), 0.5)}
        polars.DataFrame(points).write_parquet(folder / "over_time.parquet")
    else:
        curves = [
            {"policy": row["policy"], "run": run, "step": 9, "regret": regret}
            for row in rows
            for run, regret in enumerate(row["each"])
        ]
        polars.DataFrame(curves).write_parquet(folder / "curves.parquet")
    [result] = read_folder(folder)
    return result.summary


def lost(base: list[float], **each: list[float]) -> list[dict[str, Any]]:
    """Rows of a saved simulation, from the regret of each policy's runs."""
    numbers = {"reward": 0.5, "reward_low": 0.4, "reward_high": 0.6, "found": 0, "changes": 0,
               "false_alarms": 0, "delay_median": None}  # fmt: skip
    rows = [
        {"policy": label, "each": runs, **numbers}
        | columns("regret", mean_interval(np.array(runs)))
        | columns("saved", gain(np.array(runs), np.array(base)))
        for label, runs in {"base": base, **each}.items()
    ]
    return [finite(row) for row in rows]


SIMULATED = {"world": {"what": "A world."}, "horizon": 10}


def test_an_oracle_is_the_reference_and_not_the_winner(tmp_path: Path) -> None:
    rows = lost([10.0, 12.0, 14.0], ps=[5.0, 6.0, 7.0], oracle=[1.0, 1.0, 1.0])
    said = saved_run(tmp_path, SIMULATED | {"runs": 3}, rows)
    assert said == (
        "The lowest regret over 3 runs of 10 steps is that of ps: 6 [4, 8]. It saves 50 % [50, 50] "
        "of base's regret; knowing the changes, oracle has 1 [1, 1]. A world."
    )
    named = {"policies": {"base": "UCB()", "ps": "UCB()", "truth": "OracleMaker(name='ucb')"}}
    rows[2]["policy"] = "truth"
    said = saved_run(tmp_path, SIMULATED | {"runs": 3} | named, rows)
    assert "is that of ps" in said
    assert "knowing the changes, truth has 1" in said


def test_a_tie_of_simulated_policies_is_said_to_be_one(tmp_path: Path) -> None:
    rows = lost([20.0, 22.0, 24.0], ps=[5.0, 6.0, 7.0], other=[7.0, 4.0, 6.0])
    said = saved_run(tmp_path, SIMULATED | {"runs": 3}, rows)
    assert "that of other: 6 [2, 9], which cannot be told apart from ps's (6 [4, 8])." in said
    assert "It saves 74 %" in said
    close = lost([10.0, 12.0, 14.0], ps=[9.0, 13.0, 13.0])
    said = saved_run(tmp_path, SIMULATED | {"runs": 3}, close)
    assert said.startswith("No policy is clearly ahead: the lowest regret")
    assert "saves" not in said


def test_the_baseline_may_lead_and_one_run_has_no_lead(tmp_path: Path) -> None:
    said = saved_run(tmp_path, SIMULATED | {"runs": 3}, lost([1.0, 2.0, 3.0], ps=[2.0, 4.0, 6.0]))
    assert "is that of base: 2 [" in said
    assert "Beside it, ps adds 100 % [100, 100] to base's regret." in said
    said = saved_run(tmp_path, SIMULATED | {"runs": 1}, lost([1.0], ps=[9.0]))
    assert "No policy is clearly ahead" in said
    assert "One run does not say how much of that is chance." in said


def earned(*rows: tuple[str, float, float]) -> list[dict[str, Any]]:
    """Rows of a saved replay: label, rate, and rate over that of the first, minus one."""
    made = [
        {"policy": label, "matched": 9, "events": 90, "changes": 0}
        | columns("ctr", (rate, rate - 0.02, rate + 0.02))
        | columns("relative", (relative, relative - 0.05, relative + 0.05))
        for label, rate, relative in rows
    ]
    return [finite(row) for row in made]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([("lin", 0.4735, 0), ("adaptive", 0.475, 0.003)],
         "No policy is clearly ahead: the highest average reward is that of adaptive: 0.4750 "
         "[0.4550, 0.4950], which cannot be told apart from lin's (0.4735 [0.4535, 0.4935]). The"),
        ([("random", 0.3, 0), ("lin", 0.4, 0.33), ("adaptive", 0.405, 0.35)],
         "cannot be told apart from lin's (0.4000 [0.3800, 0.4200]). It is above random's by "
         "35.0 % [30.0, 40.0]. The"),
        ([("random", 0.3, 0), ("ucb", 0.4, 0.33), ("lin", 0.5, 0.67)],
         "is that of lin: 0.5000 [0.4800, 0.5200]. It is above random's by 67.0 % [62.0, 72.0]."),
        ([("lin", 0.4, 0), ("random", 0.3, -0.25)],
         "that of lin: 0.4000 [0.3800, 0.4200]. That of random is lower by 25.0 % [20.0, 30.0]."),
        ([("lin", math.nan, math.nan), ("a", 0.5, math.nan), ("b", 0.3, math.nan)],
         "The highest average reward is that of a: 0.5000 [0.4800, 0.5200]. The log has"),
        ([("lin", math.nan, math.nan)], "No policy's average reward is known. The log has"),
    ],
)  # fmt: skip
def test_what_a_replay_bears_out(
    rows: list[tuple[str, float, float]], said: str, tmp_path: Path
) -> None:
    settings = {"log": "a.whim", "events": 90, "logging": "uniform"}
    found = saved_run(tmp_path, settings, earned(*rows))
    assert said in found
    assert len(sentences(found)) <= SENTENCES


def test_a_log_is_no_folder_of_results(tmp_path: Path) -> None:
    with whim.logs.Writer(tmp_path / "a.whim", n_features=1, logging="uniform") as writer:
        writer.event(time=0, x=[1.0], arms=["a"], shown="a", reward=1.0)
    with pytest.raises(InvalidInputError, match=r"got the log .*a\.whim: 'whim replay .* --save"):
        read_folder(tmp_path / "a.whim")


def test_a_json_file_of_another_kind_is_named(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(InvalidInputError, match="of an experiment: it holds a list"):
        read_folder(tmp_path)
    for text in ('{"a": 1}', "[]", '{"settings": {}, "policies": []}'):
        (tmp_path / "other.json").write_text(text)
        with pytest.raises(InvalidInputError, match=r"other\.json must be"):
            read_folder(tmp_path)
