// --- The panel of a stage --------------------------------------------------------------------------------------------

/// One stage: its tiles, the one at work and who does what in it, the lanes, and the state of the row.
class Panel {
    constructor(trace) {
        this.trace = trace;
        this.element = document.createElement("article");
        this.element.setAttribute("aria-label", trace.stage);
        this.element.innerHTML = `
            <h2></h2><p class="change"></p><p class="status"></p>
            <canvas class="grid" role="img"></canvas>
            <h3 class="work-title"></h3><p class="says"></p>
            <canvas class="tile" role="img"></canvas><canvas class="warps" role="img"></canvas>
            <div class="work"></div>
            <h3>Blocks on multiprocessors (SM), in the time of the model</h3>
            <canvas class="lanes" role="img"></canvas>
            <h3 class="row-title"></h3><canvas class="chart" role="img"></canvas>
            <div class="rows" tabindex="0" aria-label="States of the row"><table></table></div>`;
        this.part = name => this.element.querySelector("." + name);
        this.element.querySelector("h2").textContent = trace.stage;
        this.part("change").textContent = trace.change;
        this.tiles = new Tiles(trace, this.part("grid"));
        this.work = new Work(trace, this.part);
        this.lanes = new Lanes(trace, this.part("lanes"));
        this.row = new Row(trace, this.part);
        this.listen();
    }

    draw() {
        this.drawStatus();
        this.tiles.draw();
        this.work.draw();
        this.lanes.draw(this.work.followed.blocks);
        this.row.draw();
    }

    drawStatus() {
        const {trace} = this, t = state.t, done = trace.visits.filter(visit => visit.end <= t);
        const busy = trace.blocksAt(t).length;
        const launch = trace.launches.findIndex(l => t < l.end);
        const kernels = trace.launches.length;
        const kernel = kernels > 1 && launch >= 0 ? `kernel ${launch + 1} of ${kernels}, ` : "";
        const masked = done.filter(visit => visit.masked).length, inVain = done.filter(visit => visit.inVain).length;
        const text = (t >= trace.end ? `done at ${+trace.end.toFixed(2)}` :
                      `${kernel}${busy} block${busy === 1 ? "" : "s"} at work`) +
            `; ${inText(done.length)} of ${inText(trace.visits.length)} tiles visited, ${inText(masked)} masked` +
            (inVain > 0 ? `, ${inText(inVain)} in vain` : "");
        this.part("status").textContent = text;
        this.part("grid").setAttribute("aria-label", `Tiles of ${trace.stage}: ${text}`);
    }

    listen() {
        const {trace, tiles, lanes} = this, {warps} = this.work;
        tiles.canvas.addEventListener("click", event => {
            const at = tiles.tileAt(event);
            if (at) show(trace.rowAt(at.batch, at.head, at.packed));
        });
        lanes.canvas.addEventListener("pointerdown", event => {
            const {time, block} = lanes.blockAt(event);
            pause();
            const visit = block && (block.visits.find(v => v.start <= time && time < v.end) ?? block.visits[0]);
            const {batch, head, i} = trace.place(state);
            const other = visit && (visit.batch !== batch || visit.head !== head || visit.i !== i);
            show({t: time, ...(other ? trace.rowAt(visit.batch, visit.head, visit.i * trace.rows) : {})});
        });
        lanes.canvas.addEventListener("pointermove", event => {
            if (event.buttons === 1) show({t: lanes.blockAt(event).time});
        });
        warps.canvas.addEventListener("pointerdown", event => {
            if (!warps.timeline) return;
            pause();
            show({t: warps.spanAt(event).time});
        });
        for (const view of [tiles, lanes, warps]) {
            view.canvas.addEventListener("pointermove", event => tip(event, view.describe(event)));
            view.canvas.addEventListener("pointerleave", () => tip(null));
        }
    }
}

function tip(event, text) {
    const box = byId("tip");
    box.hidden = !event || !text || event.pointerType === "touch";
    if (box.hidden) return;
    box.textContent = text;
    box.style.left = Math.min(event.clientX + 14, innerWidth - 310) + "px";
    box.style.top = event.clientY + 16 + "px";
}
