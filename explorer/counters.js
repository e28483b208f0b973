// --- Counters --------------------------------------------------------------------------------------------------------

const shownCounters = data.counters.map((name, k) => k).filter(k => traces.some(trace => trace.total[k] > 0));
const cells = [];
function makeCounterTable() {
    const table = byId("counter-table"), head = table.createTHead().insertRow(), body = table.createTBody();
    const titles = ["counter", ...traces.flatMap(trace => [trace.stage, "in all", ""])];
    if (traces.length === 2) titles.push("difference now", "in all");
    for (const title of titles) {
        const cell = document.createElement("th");
        cell.textContent = title;
        head.append(cell);
    }
    for (const k of shownCounters) {
        const row = body.insertRow(), own = {k, now: [], bars: []};
        row.insertCell().textContent = words(data.counters[k]);
        const most = Math.max(...traces.map(trace => trace.total[k]));
        for (const trace of traces) {
            own.now.push(row.insertCell());
            row.insertCell().textContent = inText(trace.total[k]);
            const bar = row.insertCell();
            bar.className = "bar wide";
            bar.innerHTML = "<div><i class='whole'></i><i class='part'></i></div>";
            bar.querySelector(".whole").style.width = 100 * trace.total[k] / most + "%";
            own.bars.push({part: bar.querySelector(".part"), most});
        }
        if (traces.length === 2) {
            own.difference = row.insertCell();
            const [a, b] = traces.map(trace => trace.total[k]);
            row.insertCell().textContent = a === b ? "same" : a === 0 ? "new" : `×${+(b / a).toPrecision(3)}`;
        }
        cells.push(own);
    }
    [...head.cells].forEach((cell, k) => {
        if (body.rows[0].cells[k].classList.contains("wide")) cell.className = "wide";
    });
}
function drawCounters() {
    const now = traces.map(trace => trace.countersAt(state.t));
    for (const {k, now: texts, bars, difference} of cells) {
        now.forEach((counted, n) => {
            texts[n].textContent = inText(counted[k]);
            bars[n].part.style.width = 100 * counted[k] / bars[n].most + "%";
        });
        if (difference) {
            const d = now[1][k] - now[0][k];
            difference.textContent = d === 0 ? "0" : (d > 0 ? "+" : "−") + inText(Math.abs(d));
        }
    }
}
