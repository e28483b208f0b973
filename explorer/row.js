// --- The chosen row --------------------------------------------------------------------------------------------------

class Row {
    constructor(trace, part) {
        Object.assign(this, {trace, part});
    }

    draw() {
        const {trace} = this, t = state.t, notes = trace.notes(state);
        const table = this.part("rows").querySelector("table");
        const L = trace.L[(state.batch * data.shape.H + state.head) * data.shape.Nq + state.row];
        const where = data.shape.H > 1 ? `, head ${state.head}` : "";
        this.part("row-title").textContent = `Row ${state.row}${where}: m and l (m in base 2); its L is ${short(L, 4)}`;
        const chart = this.part("chart"), list = this.part("rows");
        chart.hidden = list.hidden = notes.length === 0;
        if (notes.length === 0) {
            this.part("row-title").textContent = `Row ${state.row}${where}: ` + (trace.pass === "backward" ?
                `no m and l; P = exp(S - L) with its L of the forward pass, ${short(L, 4)}` :
                "this stage keeps no running m and l");
            return;
        }
        this.drawChart(notes);
        const known = notes.filter(note => note.time <= t).length;
        if (this.listed !== notes) {
            this.listed = notes;
            table.innerHTML = "<tr><th>key tile</th><th>block</th><th class='wide'>warp</th><th>m</th><th>l</th>" +
                "<th>rescaled by</th></tr>";
            for (const note of notes) {
                const row = table.insertRow();
                const visit = note.block.visits[note.visit];
                const values = [note.merged ? "merged" : visit ? visit.j : "", note.block.number, note.warp,
                                short(note.m), short(note.l),
                                note.rescale === null || note.merged ? "" : note.rescale === 1 ? "1" :
                                short(note.rescale, 4)];
                values.forEach((value, k) => {
                    const cell = row.insertCell();
                    cell.textContent = value;
                    if (k === 2) cell.className = "wide";
                    if (k === 5 && note.rescale !== null && note.rescale !== 1) cell.className = "risen";
                });
            }
        }
        [...table.rows].slice(1).forEach((row, k) => {
            row.className = k >= known ? "later" : k === known - 1 ? "now" : "";
        });
        // Only the list scrolls, and only if the state is out of its sight.
        const now = table.rows[Math.max(known, 1)], head = table.rows[0].offsetHeight;
        if (now.offsetTop - head < list.scrollTop) list.scrollTop = now.offsetTop - head;
        const below = now.offsetTop + now.offsetHeight - list.clientHeight;
        if (below > list.scrollTop) list.scrollTop = below;
    }

    // m, and m + log2 l above it, over the time of the model; a line for each block and warp that has the row.
    drawChart(notes) {
        const canvas = this.part("chart"), {context, width} = prepare(canvas, 112);
        const left = 46, right = 8, top = 8, bottom = 96;
        const finite = notes.flatMap(n => n.m === null || n.l === 0 ? [] : [n.m, n.m + Math.log2(n.l)]);
        const low = Math.min(...finite, 0), high = Math.max(...finite, low + 1);
        const x = time => left + time / end * (width - left - right);
        const y = value => bottom - (value - low) / (high - low) * (bottom - top);
        context.strokeStyle = colours.line;
        context.fillStyle = colours.faint;
        context.textAlign = "right";
        for (const value of [low, (low + high) / 2, high]) {
            context.beginPath();
            context.moveTo(left, y(value));
            context.lineTo(width - right, y(value));
            context.stroke();
            context.fillText(short(value, 1), left - 4, y(value));
        }
        const holders = new Map();
        for (const note of notes) {
            if (note.m === null || note.l === 0) continue;
            const key = note.block.number + "," + note.warp;
            if (!holders.has(key)) holders.set(key, []);
            holders.get(key).push(note);
        }
        for (const own of holders.values()) {
            for (const [value, weight] of [[n => n.m, 2], [n => n.m + Math.log2(n.l), 1]]) {
                for (const past of [false, true]) {
                    const until = past ? Math.min(state.t, own[0].block.end) : own[0].block.end;
                    context.strokeStyle = colourOf(own[0].block, past ? 1 : .22);
                    context.lineWidth = weight;
                    context.beginPath();
                    own.forEach((note, k) => {
                        if (note.time > until) return;
                        const to = Math.min(until, k + 1 < own.length ? own[k + 1].time : until);
                        context[k === 0 ? "moveTo" : "lineTo"](x(note.time), y(value(note)));
                        context.lineTo(x(to), y(value(note)));
                    });
                    context.stroke();
                }
            }
            context.fillStyle = colours.exp;
            for (const note of own) {  // a rise of m: everything so far is rescaled
                if (note.rescale === null || note.rescale === 1 || note.time > state.t) continue;
                context.beginPath();
                context.arc(x(note.time), y(note.m), 3, 0, 2 * Math.PI);
                context.fill();
            }
        }
        context.lineWidth = 1;
        drawCursor(context, x(state.t), top - 4, bottom + 4);
        context.fillStyle = colours.faint;
        context.textAlign = "left";
        const words = ["thick: m    thin: m + log₂ l    dots: m rose, so O and l were rescaled",
                       "thick: m   thin: m + log₂ l   dots: O, l rescaled"];
        context.fillText(words.find(text => left + context.measureText(text).width <= width) ?? words[1], left, 106);
        canvas.setAttribute("aria-label", `m and l of row ${state.row} over time, ${notes.length} states`);
    }
}
