// --- The tiles of S --------------------------------------------------------------------------------------------------

class Tiles {
    constructor(trace, canvas) {
        Object.assign(this, {trace, canvas});
    }

    // Positions of the grids in a canvas of this width.
    layOut(width) {
        const {trace} = this, left = 16, top = 20, gap = 12;
        const aspect = data.shape.Nk / Math.max(data.shape.Nq * trace.group, 64);
        const columns = clamp(Math.round(Math.sqrt(trace.grids * 1.5 / aspect)), 1, Math.min(trace.grids, 12));
        const room = (width - gap * (columns - 1)) / columns - left;
        // The same rows and keys take the same space in both panels, unless a tile is mostly empty.
        const w = Math.min(room / trace.Tc, .7 * trace.keys);
        const few = data.shape.Nq * trace.group < 64;
        const cell = {w, h: few ? clamp(w, 20, 44) : Math.max(w * trace.rows / trace.keys, 4)};
        const pitch = {x: left + room + gap, y: top + cell.h * trace.Tr + gap};
        const rows = Math.ceil(trace.grids / columns);
        return {left, top, columns, cell, pitch, height: Math.max(40, rows * pitch.y)};
    }
    corner(layout, grid) {
        return {x: layout.left + (grid % layout.columns) * layout.pitch.x,
                y: layout.top + Math.floor(grid / layout.columns) * layout.pitch.y};
    }

    gridName(grid) {
        const {trace} = this, batch = Math.floor(grid / trace.heads), head = grid % trace.heads;
        const first = head * trace.group;
        const name = trace.group > 1 ? `heads ${first}–${first + trace.group - 1} share rows` : `head ${head}`;
        return data.shape.B > 1 ? `batch ${batch}, ${name}` : name;
    }

    draw() {
        const {trace, canvas} = this, t = state.t;
        const layout = this.layout = this.layOut(canvas.clientWidth);
        const {context} = prepare(canvas, layout.height);
        const {w, h} = layout.cell, selected = trace.place(state);
        for (let grid = 0; grid < trace.grids; ++grid) {
            const {x, y} = this.corner(layout, grid);
            const batch = Math.floor(grid / trace.heads), head = grid % trace.heads;
            context.fillStyle = colours.faint;
            context.textAlign = "left";
            if (layout.pitch.x > 60) context.fillText(this.gridName(grid), x, y - 9);
            const now = [];
            for (let i = 0; i < trace.Tr; ++i) {
                for (let j = 0; j < trace.Tc; ++j) {
                    const visit = trace.visitAt(t, batch, head, i, j);
                    const when = !visit ? "never" : t < visit.start ? "later" : t < visit.end ? "now" : "done";
                    if (when === "now") now.push([i, j, visit]);
                    else drawTile(context, x + j * w, y + i * h, w, h, when, visit);
                }
            }
            for (const [i, j, visit] of now) drawTile(context, x + j * w, y + i * h, w, h, "now", visit);
            if (batch === selected.batch && head === selected.head) {
                const line = y + (selected.packed + .5) / trace.rows * h;
                context.strokeStyle = context.fillStyle = colours.accent;
                context.setLineDash([5, 3]);
                context.lineWidth = 1.6;
                context.beginPath();
                context.moveTo(x, line);
                context.lineTo(x + trace.Tc * w, line);
                context.stroke();
                context.lineWidth = 1;
                context.setLineDash([]);
                context.beginPath();
                context.moveTo(x - 2, line);
                context.lineTo(x - 11, line - 5);
                context.lineTo(x - 11, line + 5);
                context.fill();
            }
        }
    }

    // What is under the pointer: a grid, a tile and a row of it.
    tileAt(event) {
        const {trace, layout} = this, box = this.canvas.getBoundingClientRect();
        for (let grid = 0; grid < trace.grids; ++grid) {
            const {x, y} = this.corner(layout, grid), {w, h} = layout.cell;
            const j = Math.floor((event.clientX - box.left - x) / w), i = (event.clientY - box.top - y) / h;
            if (j < 0 || j >= trace.Tc || i < 0 || i >= trace.Tr) continue;
            return {batch: Math.floor(grid / trace.heads), head: grid % trace.heads, i: Math.floor(i), j,
                    packed: Math.floor(i * trace.rows)};
        }
        return null;
    }

    describe(event) {
        const at = this.tileAt(event);
        if (!at) return null;
        const {trace} = this, visit = trace.visitAt(state.t, at.batch, at.head, at.i, at.j);
        const {head, row} = trace.rowAt(at.batch, at.head, at.packed);
        const where = `query tile ${at.i}, key tile ${at.j}; row ${row} of head ${head}\n`;
        if (!visit) return where + "never visited";
        return `${where}block ${visit.block.number}, ${+visit.start.toFixed(2)} to ${+visit.end.toFixed(2)}` +
            (visit.masked ? ", masked" : "");
    }
}
