#!/usr/bin/env python3
"""Opens the page of `lab trace`, and the site, in a headless Chromium and uses them as a reader would.

Usage: explorer.py LAB [--site SITE] [--screenshots FOLDER]: LAB is the program, SITE what `lab docs` made; what the
pages of `lab trace` look like goes to FOLDER.
Needs Debian's chromium, chromium-driver and python3-selenium. Exit codes: 0 ok, 1 a check failed, 3 cannot run here.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from search_queries import QUERIES, search

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
except ImportError:
    print("explorer.py: there is no Selenium; try:  sudo apt-get install python3-selenium")
    sys.exit(3)

wide, narrow = (1280, 900), (390, 800)


class Browser:
    """One page in one window; everything that the console says is an error."""

    def __init__(self, size, dark=False):
        options = Options()
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
            options.add_argument(argument)
        options.binary_location = shutil.which("chromium")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
        self.command("Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1,
                     mobile=size == narrow)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.driver.quit()

    def command(self, name, **parameters):
        self.driver.execute_cdp_cmd(name, parameters)

    def open(self, page, moment=""):
        self.driver.get("about:blank")  # another hash alone would not load the page anew
        self.driver.get(page.as_uri() + moment)
        self.quiet()

    def quiet(self):
        said = self.driver.get_log("browser")
        check(not said, f"the console says {said}")
        asked = self.script("return performance.getEntriesByType('resource').map(entry => entry.name)")
        check(not asked, f"the page asks for {asked}")

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def find(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector):
        return [element.text for element in self.find(selector)]

    def press(self, *keys):
        """Presses keys together on the page itself."""
        chain = ActionChains(self.driver)
        for key in keys[:-1]:
            chain.key_down(key)
        chain.send_keys(keys[-1])
        for key in keys[:-1]:
            chain.key_up(key)
        chain.perform()

    def time(self):
        return float(re.match(r"t = ([0-9.]+) of", self.find("#time")[0].text)[1])

    def tiles_visited(self):
        found = [re.search(r"([0-9,]+) of [0-9,]+ tiles", text) for text in self.texts(".status")]
        return [int(match[1].replace(",", "")) for match in found]

    def canvas(self, name):
        """The pixels of each panel's canvas of that class."""
        drawn = "return [...document.querySelectorAll(arguments[0])].map(canvas => canvas.toDataURL())"
        return self.script(drawn, "canvas." + name)

    def hash(self):
        return self.script("return location.hash")


def check(holds, message):
    if not holds:
        print(f"FAILED: {message}")
        sys.exit(1)


def make(lab, folder, name, *arguments):
    """The page of a trace, and its JSON."""
    page, data = folder / f"{name}.html", folder / f"{name}.json"
    subprocess.run([lab, "trace", *arguments, "--html", page, "--json", data], check=True, stdout=subprocess.DEVNULL)
    return page, json.loads(data.read_text())


def test_stepping(browser, page, data):
    browser.open(page)
    check(browser.time() == 0 and browser.tiles_visited() == [0, 0], "the page does not start at the start")
    blocks = [block for trace in data["traces"] for launch in trace["launches"] for block in launch["blocks"]]
    moments = sorted({phase[side] for block in blocks for phase in block["phases"] for side in ("start", "end")})
    for moment in moments[1:6]:
        browser.press(Keys.ARROW_RIGHT)
        check(abs(browser.time() - moment) < 0.006, f"right: t is {browser.time()} instead of {moment}")
    browser.press(Keys.ARROW_LEFT)
    check(abs(browser.time() - moments[4]) < 0.006, f"left: t is {browser.time()} instead of {moments[4]}")
    browser.press(Keys.HOME)
    tiles = sorted({visit["start"] for block in blocks for visit in block["visits"]})
    browser.press(Keys.SHIFT, Keys.ARROW_RIGHT)
    check(abs(browser.time() - tiles[1]) < 0.006, f"shift: t is {browser.time()} instead of {tiles[1]}")
    start = browser.canvas("grid") + browser.canvas("lanes")

    browser.press(Keys.END)
    check(browser.time() == max(trace["end"] for trace in data["traces"]), "End does not go to the end")
    drawn = browser.canvas("grid") + browser.canvas("lanes")
    check(all(a != b for a, b in zip(start, drawn)), "the drawing stays as it is")
    names = data["counters"]
    for n, trace in enumerate(data["traces"]):
        tiles = trace["total"][names.index("tiles")]
        visited = browser.tiles_visited()[n]
        check(visited == tiles, f"{visited} of {tiles} tiles are visited at the end")
        for row in browser.find("#counter-table tbody tr"):
            cells = [cell.text for cell in row.find_elements(By.TAG_NAME, "td")]
            counter, now, total = cells[0], cells[1 + 3 * n], cells[2 + 3 * n]
            check(now == total, f"{trace['stage']}: {counter} ends at {now} of {total}")
            check(int(total.replace(",", "")) == trace["total"][names.index(counter.replace(" ", "_"))],
                  f"{trace['stage']}: {counter} is {total}")
    browser.press(Keys.HOME)
    check(browser.time() == 0 and browser.tiles_visited() == [0, 0], "Home does not go to the start")
    browser.quiet()


def test_comparing(browser, page, data):
    """At the same time of the model 05 is further than 04, and visits nothing in vain."""
    half = max(trace["end"] for trace in data["traces"]) / 2
    browser.open(page, f"#t={half}")
    expected = [sum(visit["end"] <= half for launch in trace["launches"] for block in launch["blocks"]
                    for visit in block["visits"]) for trace in data["traces"]]
    check(browser.tiles_visited() == expected, f"tiles at {half}: {browser.tiles_visited()} instead of {expected}")
    first, second = browser.texts(".status")
    check("in vain" in first and "in vain" not in second, f"{first} | {second}")
    check([text.split()[0] for text in browser.texts("article h2")] == [trace["stage"] for trace in data["traces"]],
          "the panels are not of these stages")
    ratios = {row[0]: row[-1] for row in ([cell.text for cell in line.find_elements(By.TAG_NAME, "td")]
                                          for line in browser.find("#counter-table tbody tr"))}
    check(ratios["blocks"] == "same" and ratios["tiles"].startswith("×0."), f"the ratios are {ratios}")


def test_row(browser, page, data):
    """A row's states are the recorded ones, and a click chooses another row."""
    row = 70
    browser.open(page, f"#t=0&head=1&row={row}")
    recorded = [(rows["m"][row - rows["first"]], rows["l"][row - rows["first"]])
                for launch in data["traces"][1]["launches"] for block in launch["blocks"] for phase in block["phases"]
                for rows in phase["rows"] if block["visits"][0]["head"] == 1
                if rows["first"] <= row < rows["first"] + len(rows["m"])]
    lines = browser.find("article:nth-child(2) .rows tr")[1:]
    shown = [[cell.get_attribute("textContent") for cell in line.find_elements(By.TAG_NAME, "td")][3:5]
             for line in lines]
    check(len(recorded) > 1 and shown == [[f"{m:.2f}".replace("-", "−"), f"{l:.2f}"] for m, l in recorded],
          f"row {row} is shown as {shown}, and was recorded as {recorded}")
    check(not browser.find(".rows tr.now"), "there is a state at the start")
    browser.press(Keys.END)
    check(len(browser.find(".rows tr.now")) == 2, "there is no last state at the end")
    check(not browser.find(".rows tr.later"), "states are missing at the end")
    browser.press("j")
    check(f"row={row + 1}" in browser.hash(), f"j leads to {browser.hash()}")
    grid = browser.find("canvas.grid")[0]
    ActionChains(browser.driver).move_to_element_with_offset(grid, 40 - grid.size["width"] // 2,
                                                             26 - grid.size["height"] // 2).click().perform()
    check("head=0" in browser.hash() and f"row={row + 1}" not in browser.hash(), f"a click leads to {browser.hash()}")
    lanes = browser.find("canvas.lanes")[1]
    browser.script("arguments[0].scrollIntoView({block: 'center'})", lanes)
    ActionChains(browser.driver).move_to_element(lanes).click().perform()
    end = max(trace["end"] for trace in data["traces"])
    check(0 < browser.time() < end, "a click in the lanes does not set the time")
    browser.quiet()


def test_address(browser, page, data):
    browser.open(page, "#t=17&head=1&row=5")
    for _ in range(2):
        values = [browser.find(f"#{name}")[0].get_attribute("value") for name in ("head", "row")]
        check(browser.time() == 17 and values == ["1", "5"], f"the address gives t = {browser.time()}, {values}")
        drawn = browser.canvas("grid")
        browser.press("k")
        browser.press("j")  # there and back, so that the page has written the address itself
        check(browser.hash() == "#t=17&head=1&row=5", f"the address is {browser.hash()}")
        browser.driver.refresh()
        check(browser.canvas("grid") == drawn, "a reload shows something else")
    browser.script("location.hash = '#t=3'")
    time.sleep(0.2)
    check(browser.time() == 3, "another address in the same window is not followed")
    for odd in ("#t=1e9&row=-4&head=77", "#t=NaN&row=x", "#", "#&&=&t"):
        browser.open(page, odd)
        check(0 <= browser.time() <= max(trace["end"] for trace in data["traces"]), f"{odd}: t is {browser.time()}")


def test_playing(browser, page):
    browser.open(page, "#speed=1")  # slow enough that no machine is at the end before it is told to stop
    browser.press(" ")
    time.sleep(0.7)
    check(browser.find("#play")[0].text == "Pause" and browser.time() > 0, "space does not start it")
    browser.press(" ")
    stopped = browser.time()
    time.sleep(0.3)
    check(browser.time() == stopped, f"space does not stop it: t = {stopped}, then {browser.time()}")
    written = re.match(r"#t=([0-9.]+)", browser.hash())
    check(written and abs(float(written[1]) - stopped) < 0.006,
          f"it stops at {stopped}, and the address is {browser.hash()}")
    browser.press("?")
    check(browser.script("return document.getElementById('help').open"), "? does not help")
    browser.press(Keys.ESCAPE)
    check(not browser.script("return document.getElementById('help').open"), "the help does not close")
    browser.quiet()


def test_shares(browser, page, data):
    """The enlarged tile tells sliced keys (03) from split-Q (04), and the page opens on the last row."""
    end = max(trace["end"] for trace in data["traces"])
    browser.open(page)
    browser.press(Keys.END)
    browser.press(Keys.HOME)
    check(browser.hash() == f"#t=0&row={data['shape']['Nq'] - 1}", f"the page opens on {browser.hash()}")
    browser.open(page, f"#t={end / 2}")
    tiles = [element.get_attribute("aria-label") for element in browser.find("canvas.tile")]
    for warp in range(4):
        rows, keys = f"rows {16 * warp} to {16 * warp + 15}", f"keys {16 * warp} to {16 * warp + 15}"
        check(all(f"warp {warp} rows {16 * slice} to {16 * slice + 15}, {keys}" in tiles[0] for slice in range(4)),
              f"03, warp {warp}: {tiles[0]}")
        check(re.findall(rf"warp {warp} ([^;.]*)", tiles[1]) == [f"{rows}, keys 0 to 63"],
              f"04, warp {warp}: {tiles[1]}")
    check("bytes through shared memory" in tiles[0] and "no warp reads" in tiles[1], f"the exchange: {tiles}")
    # 04 shuffles within its warps, which is no exchange between them.
    legend = browser.find("#legend")[0].text
    check("shuffles in a warp" in legend and "between warps" in legend, f"the legend: {legend}")
    kinds = browser.script("return kindOfCounter.filter(([, , kind]) => kind === 'exchange').map(([name]) => name)")
    check("shuffles" not in kinds and "shared_exchange_bytes" in kinds, f"between warps: {kinds}")
    barriers = [element.get_attribute("aria-label") for element in browser.find("canvas.warps")]
    check("9 barriers" in barriers[0] and "2 barriers" in barriers[1], f"the barriers: {barriers}")
    check("mma and nothing else" in browser.find("#unit")[0].text, "the unit of time is not explained")


def test_following(browser, page, data):
    """When the row's block is done, a block at work is shown."""
    first = next(block for launch in data["traces"][1]["launches"] for block in launch["blocks"]
                 if {visit["i"] for visit in block["visits"]} == {0})
    for t, words in ((first["start"], "which has row 0"), (first["end"], "no block is at row 0 now")):
        browser.open(page, f"#t={t}&head={first['visits'][0]['head']}&row=0")
        check(words in browser.texts(".work-title")[1], f"at {t}: {browser.texts('.work-title')}")
        check(browser.find("article:nth-child(2) .work .warp"), f"at {t} no warp is shown")


def test_timeline(browser, page, data):
    """Of a Hopper kernel there is a timeline of loads, places and warpgroups; beside it, the lanes of another stage."""
    hopper = data["traces"][1]
    blocks = [block for launch in hopper["launches"] for block in launch["blocks"]]
    check(len({len(block["visits"]) for block in blocks}) == 1, "blocks that count alike have other numbers of tiles")
    for block in blocks:
        for lane in block["timeline"]["lanes"]:
            spans = [span for span in lane["spans"] if span[2] != "flight"]
            check(all(block["start"] <= a < b <= block["end"] for a, b, _ in spans), f"times of {lane['name']}: {spans}")
            kinds = {kind for _, _, kind in spans}
            check({"loads": "copy", "place": "read", "products": "values", "warpgroup": "exp"}[lane["kind"]] in kinds,
                  f"{lane['name']} is never what it is for: {kinds}")
    block = blocks[0]
    browser.open(page, f"#t={(block['start'] + block['end']) / 2}")
    lanes, timeline = [element.get_attribute("aria-label") for element in browser.find("canvas.warps")]
    check("barrier" in lanes and "Timeline" not in lanes, f"26 has {lanes}")
    check("Timeline of warp 0, Q 0, Q 1, K 0" in timeline and "group 1, group 2, group 3" in timeline, timeline)
    check(f"tensor units at work {round(100 * block['timeline']['products'])}%" in timeline, timeline)
    check("clocks of a multiprocessor" in browser.find("#unit")[0].text, "the unit of clocks is not explained")
    canvas = browser.find("canvas.warps")[1]
    browser.script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    before = browser.time()
    ActionChains(browser.driver).move_to_element_with_offset(canvas, canvas.size["width"] // 3, 0).click().perform()
    check(browser.time() > before, "a click in the timeline does not set the time")
    browser.press(Keys.END)
    names = data["counters"]
    for row in browser.find("#counter-table tbody tr"):
        cells = [cell.text for cell in row.find_elements(By.TAG_NAME, "td")]
        check(cells[4] == cells[5], f"{cells[0]} ends at {cells[4]} of {cells[5]}")
    visited = browser.tiles_visited()[1]
    check(visited == hopper["total"][names.index("tiles")], f"{visited} tiles are visited at the end")
    browser.quiet()


def test_gradients(browser, page, data):
    """Tiles that two kernels visit show the visit of the time; a row has the L that the stage is given."""
    launches = data["traces"][0]["launches"]
    drawn = []
    for launch in [launch for launch in launches if any(block["visits"] for block in launch["blocks"])]:
        for t in (launch["start"], (launch["start"] + launch["end"]) / 2):
            browser.open(page, f"#t={t}&row=5")
            drawn.append(browser.canvas("grid")[0])
    check(len(set(drawn)) == len(drawn) == 4, "41 looks alike when each of its kernels begins and is half done")
    for title, trace in zip(browser.texts(".row-title"), data["traces"]):
        check("no m and l" in title and f"{trace['L'][5]:.4f}" in title, f"row 5 says {title}")
    rows = [canvas.get_attribute("aria-label") for canvas in browser.find("canvas.tile")]
    check("warp 3 rows 0 to 63, keys 48 to 63" in rows[0], f"41 has {rows[0]}")
    check("bytes through shared memory" in rows[1], f"43 has {rows[1]}")
    browser.press(Keys.END)
    check(browser.tiles_visited() == [24, 12], f"{browser.tiles_visited()} tiles are visited")
    browser.quiet()


def test_no_rows(browser, page, data):
    """Tiles of 35 behind the last row are beside the others, visited in vain; 36 has none."""
    browser.open(page)
    browser.press(Keys.END)
    wasted, own = browser.tiles_visited()
    check((wasted, own) == (18, 12), f"{wasted} and {own} tiles are visited")
    first, second = browser.texts(".status")
    check("6 in vain" in first and "in vain" not in second, f"{first} | {second}")
    shown = browser.script("return [...document.querySelectorAll('canvas.grid')].map(canvas => canvas.clientHeight)")
    check(shown[0] > shown[1], f"the grids are {shown} high")


def test_search(browser, site):
    """What a student types leads to the lesson of it."""
    browser.driver.get(sorted(site.glob("docs_course_quiz_*.html"))[-1].as_uri())
    cut, end = browser.script("""const links = [...document.querySelectorAll("#menu a")];
        return [links.filter(link => link.scrollWidth > link.clientWidth).map(link => link.innerText),
                links.find(link => link.ariaCurrent).getBoundingClientRect().bottom]""")
    check(not cut, f"the menu cuts {cut}")
    check(0 < end < wide[1], f"the menu's link to the page ends at {end}")
    xor_swizzle, = (folder.name for folder in (Path(__file__).parent.parent / "stages").glob("*_xor_swizzle"))
    for query, first in (("split-Q", ["stages_04_split_q"]), ("splitq", ["stages_04_split_q"]),
                         ("bank conflict", [f"stages_{xor_swizzle}"]),
                         ("softmax", ["stages_01_flash_attention_1", "notebooks_01_online_softmax"]), ("xyzzy", [])):
        found = search(browser, query)
        check(found[:len(first)] == first and bool(found) == bool(first), f"{query} finds {found}")
    for query, wanted in QUERIES.items():
        found = search(browser, query)
        check(set(found[:2]) & set(wanted.split()), f"{query} finds {found[:4]}")
        check("CHANGELOG" not in found[:4] or query == "changelog", f"{query} finds the changelog: {found}")
        excerpts = " ".join(browser.texts("#site-results p"))
        check(not re.search(r"\\[a-z]+|[a-z]_\{", excerpts), f"TeX in what {query} shows: {excerpts}")
    found = search(browser, "counters")
    symbols = [re.search("^(struct|class)|_8", name) is not None for name in found]
    check(symbols == sorted(symbols) and set(symbols) == {False, True}, f"symbols are not last: {found}")
    search(browser, "split-Q")
    browser.find("#site-search")[0].send_keys(Keys.ARROW_DOWN, Keys.ENTER)
    for _ in range(50):
        if "stages_04" in browser.driver.current_url:
            break
        time.sleep(0.1)
    check("stages_04_split_q" in browser.driver.current_url, f"Enter leads to {browser.driver.current_url}")
    frame = browser.find("iframe.explorer")
    check(frame, "lesson 04 has no explorer")
    browser.script("arguments[0].loading = 'eager'", frame[0])
    browser.driver.switch_to.frame(frame[0])
    check(len(browser.find("article canvas.tile")) == 2, "the explorer in lesson 04 has no two tiles")
    browser.driver.switch_to.default_content()
    said = browser.driver.get_log("browser")
    check(not said, f"the console says {said}")


def test_one_mma(browser, site):
    """The page's lane maps are those of device.cuh, a lane under the mouse lights up what it holds, and banks conflict in
    8 ways where rows are plain."""
    browser.driver.get((site / "docs_one_mma.html").as_uri())
    device = (Path(__file__).parent.parent / "stages/device.cuh").read_text()
    for name in ("row_of", "column_of", "a_row", "a_column", "b_row", "b_column"):
        argument, formula = re.search(rf"int {name}\(const int& (\w+)\) {{\s*return (.*?);", device).groups()
        wanted = [eval(formula.replace("/", "//"), {argument: n}) for n in range(32)]
        found = browser.script(f"return [...Array(32).keys()].map(n => oneMma.{name}(n))")
        check(found == wanted, f"{name} is {found} instead of {wanted}")
    lanes = browser.find(".one-mma .lanes button")
    lanes[30].click()
    browser.press(Keys.ARROW_UP)
    check(lanes[26].get_attribute("aria-pressed") == "true", "an arrow does not lead to the lane above")
    ActionChains(browser.driver).move_to_element(lanes[5]).perform()
    lit = browser.script("""return Object.fromEntries(["A", "B", "C"].map(name => [name,
        [...document.querySelectorAll(`[data-name=${name}] .held`)].map(cell => cell.dataset.at).join(" ")]))""")
    check(lit == {"A": "1,2 1,3 1,10 1,11 9,2 9,3 9,10 9,11", "B": "2,1 3,1 10,1 11,1", "C": "1,2 1,3 9,2 9,3"},
          f"lane 5 lights up {lit}")
    ways = []
    for layout in browser.find("[name=one-mma-layout]"):
        layout.click()
        ways += browser.texts(".one-mma .ways b")
    check(ways == ["8-way", "1-way", "1-way"], f"the layouts conflict in {ways}")


def test_pages(browser, site, size):
    """Nothing of any kind of page sticks out or is too small to read, and the first page's parts and the ladder are cards."""
    kinds = "index about stages stages_*s_* stages_04_* notebooks_* files *_8h".split()
    for page in [sorted(site.glob(f"{kind}.html"))[0] for kind in kinds] + sorted(site.glob("docs_*.html")):
        browser.driver.get(page.as_uri())
        wide, below = browser.script("""const page = document.documentElement, footer = document.querySelector("address.footer");
                                        const end = footer ? footer.getBoundingClientRect().bottom + 60 : page.scrollHeight;
                                        return [page.scrollWidth, page.scrollHeight - Math.max(end, page.clientHeight)]""")
        check(wide <= size[0], f"{page.name} is {wide} wide in a window of {size[0]}")
        check(below <= 0, f"{page.name} ends {below} pixels above an empty rest")
        wrong, small = browser.script("""const all = selector => [...document.querySelectorAll(selector)];
            return [all(".katex-error").map(formula => formula.title), all("p > img[width]").filter(picture =>
                picture.clientWidth && picture.clientWidth < 0.6 * picture.naturalWidth).map(picture => picture.src)]""")
        check(not wrong, f"{page.name} has formulas that are not typeset: {wrong}")
        check(not small, f"{page.name} has pictures that are too small to read: {small}")
        if page.name == "index.html":
            cards, parts = len(browser.find(".front tbody tr")), len(list(site.glob("stages_??s_*.html")))
            check(cards == parts, f"{page.name} has {cards} cards for {parts} parts")
            check(not browser.find("#menu")[0].is_displayed(), "the menu is open on a phone")
            browser.find("label[for=menu-open]")[0].click()
            check(browser.find("#menu a")[0].is_displayed(), "the button does not open the menu")
        if page.name == "about.html":
            check(len(browser.find(".ladder .card")) > 20, f"{page.name} has no cards")
            drawn = [text for text in browser.texts("pre") if re.search(r"^\d\d \w.*\n +\|", text)]
            check(not drawn, f"{page.name} draws the ladder in letters: {drawn}")
    search(browser, "mma")
    box = browser.find("#site-results")[0].rect
    check(box["x"] >= 0 and box["x"] + box["width"] <= size[0], f"what is found is at {box}")


def test_fits(browser, page, data):
    """Nothing sticks out of the window, and everything is drawn."""
    browser.open(page, f"#t={data['traces'][0]['end'] / 3}")
    fits = browser.script("return document.documentElement.scrollWidth <= innerWidth")
    check(fits, "the page is wider than the window")
    blank = browser.script("""
        const blank = canvas => {
            const {width, height} = canvas;
            const pixels = canvas.getContext("2d").getImageData(0, 0, width, height).data.buffer;
            return new Set(new Uint32Array(pixels)).size < 5;
        };
        return [...document.querySelectorAll("article canvas")].filter(c => !c.hidden && blank(c)).map(c => c.className)
    """)
    check(not blank, f"nothing is drawn in {blank}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("lab", "--site", "--screenshots"):
        parser.add_argument(name, type=Path)
    arguments = parser.parse_args()
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            print(f"explorer.py: there is no {program}; try:  sudo apt-get install chromium chromium-driver")
            sys.exit(3)
    with tempfile.TemporaryDirectory(prefix="ladder-") as temporary:
        folder, lab = Path(temporary), arguments.lab.resolve()
        causal = make(lab, folder, "causal", "4", "5", "--shape", "1,2,2,256,256,64", "--causal", "--sms", "2")
        split = make(lab, folder, "split", "3", "4", "--shape", "1,1,1,128,256,64")
        hopper = make(lab, folder, "hopper", "26", "36", "--shape", "1,2,2,384,256,64", "--sms", "2")
        others = {
            "naive": make(lab, folder, "naive", "0", "--shape", "1,1,1,130,130,64"),
            "grouped": make(lab, folder, "grouped", "6", "12", "--shape", "1,8,2,1,1024,64", "--sms", "8"),
            "batches": make(lab, folder, "batches", "1", "25", "--shape", "2,2,1,100,150,128", "--sms", "132"),
            "no_keys": make(lab, folder, "no_keys", "5", "25", "--shape", "1,3,3,300,70,64", "--causal"),
            "gradients": make(lab, folder, "gradients", "41", "43", "--shape", "1,1,1,192,256,64"),
            "five": make(lab, folder, "five", "46", "55", "--shape", "1,2,1,192,256,64", "--causal"),
            "no_rows": make(lab, folder, "no_rows", "35", "36", "--shape", "1,2,2,100,300,64", "--sms", "2"),
        }
        for size, dark in ((wide, False), (narrow, True)):
            with Browser(size, dark) as browser:
                test_stepping(browser, *causal)
                test_comparing(browser, *causal)
                test_row(browser, *causal)
                test_address(browser, *causal)
                test_playing(browser, causal[0])
                test_shares(browser, *split)
                test_following(browser, *causal)
                test_timeline(browser, *hopper)
                test_no_rows(browser, *others["no_rows"])
                test_gradients(browser, *others["gradients"])
                if arguments.site and size == wide:
                    test_search(browser, arguments.site.resolve())
                    test_one_mma(browser, arguments.site.resolve())
                if arguments.site and size == narrow:
                    test_pages(browser, arguments.site.resolve(), size)
                for name, (page, data) in {"causal": causal, "split": split, "hopper": hopper, **others}.items():
                    test_fits(browser, page, data)
                    if arguments.screenshots:
                        arguments.screenshots.mkdir(parents=True, exist_ok=True)
                        browser.driver.save_screenshot(str(arguments.screenshots / f"{name}_{size[0]}.png"))
    print("the explorer works in Chromium" + (", and so does the site" if arguments.site else ""))


main()
