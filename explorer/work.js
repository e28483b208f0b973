// --- The tile at work ------------------------------------------------------------------------------------------------

class Work {
    constructor(trace, part) {
        Object.assign(this, {trace, part, warps: new Warps(trace, part("warps"))});
    }

    // The blocks to follow: those that have the selected row now; else one that is at work, the nearest to the row; else
    // the row's next one, or its last. And whether they have the row.
    toFollow() {
        const {trace} = this, t = state.t, {batch, head, i} = trace.place(state);
        const sameHead = visit => visit.batch === batch && visit.head === head;
        const ofRow = trace.blocks.filter(block => block.visits.some(visit => sameHead(visit) && visit.i === i));
        const ofRowNow = ofRow.filter(block => block.start <= t && t < block.end &&
            (!block.timeline || block.visits.some(v => sameHead(v) && v.i === i && v.start <= t && t < v.end)));
        if (ofRowNow.length > 0) return {blocks: ofRowNow, hasRow: true};
        const distance = block => {
            const visit = this.phaseAt(block).visit < 0 ? null : block.visits[this.phaseAt(block).visit];
            return visit ? Math.abs(visit.i - i) + (sameHead(visit) ? 0 : trace.Tr) : Infinity;
        };
        const atWork = trace.blocksAt(t).sort((a, b) => distance(a) - distance(b) || a.number - b.number);
        if (atWork.length > 0) return {blocks: atWork.slice(0, 1), hasRow: false};
        const next = ofRow.filter(block => block.start > t).sort((a, b) => a.start - b.start);
        return {blocks: next.length > 0 ? next.slice(0, 1) : ofRow.slice(-1), hasRow: true};
    }

    // What a block is at now, or else begins or ends with.
    phaseAt(block) {
        if (state.t < block.start) return block.phases[0];
        const now = block.phases.filter(phase => phase.start <= state.t && state.t < phase.end);
        if (block.timeline) {  // warpgroups are at tiles of their own
            const {batch, head, i} = this.trace.place(state), own = now.filter(phase => phase.visit >= 0);
            const hasRow = v => v.batch === batch && v.head === head && v.i === i;
            return own.find(phase => hasRow(block.visits[phase.visit])) ?? own[0] ?? now[0] ?? block.phases.at(-1);
        }
        return now[0] ?? block.phases.at(-1);
    }

    draw() {
        const {trace} = this, t = state.t, work = this.part("work"), says = this.part("says");
        const {blocks, hasRow} = this.followed = this.toFollow();
        const [block] = blocks;
        work.replaceChildren();
        for (const name of ["tile", "warps"]) this.part(name).hidden = !block;
        if (!block) {
            this.part("work-title").textContent = "No block visits tiles of this row";
            says.textContent = "";
            return;
        }
        // Blocks that share the row's keys do the same at once, so one stands for them.
        this.part("work-title").textContent = `Block ${block.number} on multiprocessor ${block.multiprocessor}` +
            (blocks.length > 1 ? `, and ${blocks.length - 1} more on row ${state.row}` :
             hasRow ? `, which has row ${state.row}` : `; no block is at row ${state.row} now`);
        const phase = this.phaseAt(block), visit = block.visits[phase.visit];
        const phases = block.phases.filter(p => p.visit === phase.visit);
        const atWork = block.start <= t && t < block.end;
        const of = block.timeline && visit ? `warps ${visit.first_warp} to ${visit.first_warp + visit.warps - 1}` :
                                             `phase ${phases.indexOf(phase) + 1} of ${phases.length}`;
        if (!atWork) {
            says.textContent = t < block.start ? `starts at ${+block.start.toFixed(2)}` :
                                                 `ended at ${+block.end.toFixed(2)}`;
        } else if (visit) {
            const last = Math.min(data.shape.Nk, (visit.j + 1) * visit.keys) - 1;
            says.textContent = `query tile ${visit.i}, key tile ${visit.j} (keys ${visit.j * visit.keys} to ${last})` +
                `${visit.masked ? ", masked" : ""}; ${of}`;
        } else {
            says.textContent = `no key tile; ${of}`;
        }
        this.part("tile").hidden = !visit;
        if (visit) this.drawShares(visit, phases, phase);
        if (block.timeline) this.warps.drawTimeline(block);
        else this.warps.drawPhases(phases);
        if (!atWork) return;
        const {packed} = trace.place(state), holding = new Set();
        if (hasRow) {
            for (const p of block.timeline ? phases : block.phases) {
                for (const rows of p.rows) {
                    if (rows.first <= packed && packed < rows.first + rows.m.length) holding.add(rows.warp);
                }
            }
        }
        phase.work.forEach((k, warp) => {
            if (block.timeline && workOf(trace.work[k]).length === 0) return;
            work.append(this.warpLine(trace.work[k], warp, holding.has(warp)));
        });
    }

    // The tile, with the rows and keys whose products each warp computes, and what warps read of each other.
    drawShares(visit, phases, phase) {
        const {trace} = this, canvas = this.part("tile"), t = state.t;
        const side = clamp(canvas.clientWidth * .44, 110, 240), left = 30, top = 24;
        const {context, width} = prepare(canvas, top + side + 10);
        const {Nq, Nk} = data.shape, firstRow = visit.i * visit.rows, firstKey = visit.j * visit.keys;
        // Rows beyond the end are not shown, unless there are no others.
        const rowsLeft = Math.max(0, Nq * visit.group - firstRow), rowCount = Math.min(visit.rows, rowsLeft || visit.rows);
        const x = key => left + key / visit.keys * side, y = row => top + row / rowCount * side;
        context.fillStyle = colours.empty;
        context.fillRect(left, top, side, side);
        const warps = phase.shares.length, places = [];
        for (const p of phases) {
            const alpha = t < p.start ? .16 : t < p.end ? 1 : .55;
            p.shares.forEach((k, warp) => {
                const {rows = [], keys = []} = trace.shares[k];
                for (const [row, rowEnd] of rows) {
                    for (const [key, keyEnd] of keys) {
                        const box = [x(key), y(row), x(keyEnd) - x(key), y(rowEnd) - y(row)];
                        context.fillStyle = colourOfWarp(warp, alpha);
                        context.fillRect(...box);
                        context.strokeStyle = colours.card;
                        context.strokeRect(...box);
                        places.push({warp, row, rowEnd, key, keyEnd});
                    }
                }
            });
        }
        if (data.causal && visit.masked) {  // right of the line, nothing is visible
            context.strokeStyle = colours.text;
            context.lineWidth = 1.5;
            context.beginPath();
            for (let row = 0; row < rowCount; ++row) {
                const query = Math.floor((firstRow + row) / visit.group);
                const edge = x(clamp(query + Nk - Nq - firstKey + 1, 0, visit.keys));
                context.lineTo(edge, y(row));
                context.lineTo(edge, y(row + 1));
            }
            context.stroke();
            context.lineWidth = 1;
        }
        context.textAlign = "center";
        for (let warp = 0; warp < warps; ++warp) {
            const own = places.filter(place => place.warp === warp);
            if (own.length === 0) continue;
            const least = name => Math.min(...own.map(place => place[name]));
            const most = name => Math.max(...own.map(place => place[name]));
            const w = x(most("keyEnd")) - x(least("key"));
            context.fillStyle = colours.text;
            context.fillText(w > 48 ? `warp ${warp}` : `w${warp}`, x(least("key")) + w / 2,
                             (y(least("row")) + y(most("rowEnd"))) / 2);
        }
        const {batch, head, packed} = trace.place(state);
        if (visit.batch === batch && visit.head === head && firstRow <= packed && packed < firstRow + visit.rows) {
            context.strokeStyle = colours.accent;
            context.setLineDash([5, 3]);
            context.lineWidth = 1.6;
            context.beginPath();
            context.moveTo(left - 8, y(packed - firstRow + .5));
            context.lineTo(left + side, y(packed - firstRow + .5));
            context.stroke();
            context.setLineDash([]);
            context.lineWidth = 1;
        }
        context.fillStyle = colours.faint;
        context.textAlign = "left";
        context.fillText(`S: ${visit.keys} keys →`, left, 10);
        context.save();
        context.translate(11, top);
        context.rotate(Math.PI / 2);
        context.fillText(`${rowsLeft < visit.rows ? `${rowsLeft} of ` : ""}${visit.rows} query rows →`, 0, 0);
        context.restore();
        const passed = this.drawExchange(context, phases, {left: left + side + 22, right: width - 4, top, side});
        canvas.setAttribute("aria-label", `Key tile ${visit.j}: ` + places.map(({warp, row, rowEnd, key, keyEnd}) =>
            `warp ${warp} rows ${row} to ${rowEnd - 1}, keys ${key} to ${keyEnd - 1}`).join("; ") + `. ${passed}`);
    }

    // Above the warps that stored, below those that loaded; returns it in words.
    drawExchange(context, phases, {left, right, top, side}) {
        const {trace} = this, t = state.t, warps = phases[0].shares.length;
        const bytes = Array.from({length: warps}, () => new Array(warps).fill(0)), now = bytes.map(() => new Set());
        let total = 0;
        for (const p of phases) {
            p.shares.forEach((k, reader) => (trace.shares[k].received ?? []).forEach((count, writer) => {
                if (writer === reader || count === 0) return;
                bytes[writer][reader] += count;
                total += count;
                if (p.start <= t && t < p.end) now[writer].add(reader);
            }));
        }
        const x = warp => left + (warp + .5) / warps * (right - left), size = Math.min(22, (right - left) / warps - 3);
        const [high, low] = [top + size / 2, top + side - size / 2], most = Math.max(...bytes.flat());
        context.fillStyle = colours.faint;
        context.textAlign = "center";
        const middle = (left + right) / 2;
        context.fillText("from warp to warp", middle, 10);
        for (let writer = 0; writer < warps; ++writer) {
            for (let reader = 0; reader < warps; ++reader) {
                if (bytes[writer][reader] === 0) continue;
                context.strokeStyle = colourOfWarp(writer, now[writer].has(reader) ? 1 : .3);
                context.lineWidth = 1 + 2 * bytes[writer][reader] / most;
                context.beginPath();
                context.moveTo(x(writer), high + size / 2);
                context.lineTo(x(reader), low - size / 2);
                context.stroke();
            }
        }
        context.lineWidth = 1;
        for (let warp = 0; warp < warps; ++warp) {
            for (const y of [high, low]) {
                context.fillStyle = colourOfWarp(warp);
                context.fillRect(x(warp) - size / 2, y - size / 2, size, size);
                context.fillStyle = colours.text;
                if (size >= 8) context.fillText(warp, x(warp), y + .5);
            }
        }
        const lines = total === 0 ? ["no warp reads", "what another", "has stored"] :
            [`${inText(total)} bytes`, "through shared", "memory, in this tile"];
        const wide = Math.max(...lines.map(line => context.measureText(line).width)) + 10, at = (high + low) / 2;
        context.fillStyle = colours.card;
        context.fillRect(middle - wide / 2, at - 25, wide, 50);
        context.fillStyle = colours.text;
        lines.forEach((line, k) => context.fillText(line, middle, at + 15 * (k - 1)));
        return lines.join(" ");
    }

    warpLine(counted, warp, holds) {
        const line = document.createElement("div"), name = document.createElement("b");
        line.className = "warp" + (holds ? " holds" : "");
        name.textContent = `warp ${warp}`;
        line.append(name);
        for (const [count, text, kind] of workOf(counted)) {
            const chip = document.createElement("span");
            chip.className = "chip";
            chip.style.color = `var(--${kind})`;
            chip.textContent = `${inText(count)} ${text}`;
            line.append(chip);
        }
        if (line.children.length === 1) line.append("nothing but the barrier");
        return line;
    }
}
