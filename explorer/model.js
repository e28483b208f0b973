const data = JSON.parse(document.getElementById("traces").textContent);
const byId = id => document.getElementById(id);
const counterIndex = Object.fromEntries(data.counters.map((name, k) => [name, k]));
const words = name => name.replaceAll("_", " ");
const whole = new Intl.NumberFormat("en-US");
const inText = x => whole.format(x);
const short = (x, digits = 2) => x === null ? "-∞" : x.toFixed(digits).replace("-", "−");
const clamp = (x, low, high) => Math.min(high, Math.max(low, x));

// --- The traces, with what drawing asks of them again and again ------------------------------------------------------

class Trace {
    constructor(json) {
        Object.assign(this, json);
        this.blocks = [];
        this.visits = [];
        for (const [k, launch] of json.launches.entries()) {
            for (const block of launch.blocks) {
                block.launch = k;
                block.lane = block.multiprocessor * this.placesPerMultiprocessor() + block.place;
                this.blocks.push(block);
                for (const visit of block.visits) {
                    visit.block = block;
                    visit.inVain = this.isInVain(visit);
                    this.visits.push(visit);
                }
            }
        }
        this.layOutTiles();
        this.addUpCounters();
        this.notesOfRow = new Map();
    }

    placesPerMultiprocessor() {
        return Math.max(...this.launches.map(launch => launch.blocks_per_multiprocessor));
    }

    // Whether the tile has no rows, or the last of them sees none of its keys.
    isInVain({group, rows, keys, i, j}) {
        const {Nq, Nk} = data.shape, last = Math.min(Math.floor(((i + 1) * rows - 1) / group), Nq - 1);
        return i * rows >= Nq * group || data.causal && j * keys > last + Nk - Nq;
    }

    // The grids: one for each batch entry and head, or group of heads whose rows share tiles.
    layOutTiles() {
        const {H, Nq, Nk, B} = data.shape, some = this.visits[0];
        this.group = some ? some.group : 1;
        this.rows = some ? some.rows : 64;
        this.keys = some ? some.keys : 64;
        // A block's warpgroups may go on behind the last row.
        this.Tr = this.visits.reduce((most, visit) => Math.max(most, visit.i + 1), Math.ceil(Nq * this.group / this.rows));
        this.Tc = Math.ceil(Nk / this.keys);
        this.heads = H / this.group;
        this.visitsOf = new Map();  // of each tile: several kernels may visit it
        for (const visit of this.visits) {
            const key = this.tileKey(visit.batch, visit.head, visit.i, visit.j);
            this.visitsOf.set(key, [...this.visitsOf.get(key) ?? [], visit]);
        }
        this.grids = B * this.heads;
    }
    tileKey(batch, head, i, j) {
        return ((batch * this.heads + head) * this.Tr + i) * this.Tc + j;
    }
    // The visit of a tile that counts at t: the last that has begun, or the first.
    visitAt(t, batch, head, i, j) {
        const visits = this.visitsOf.get(this.tileKey(batch, head, i, j)) ?? [];
        return visits.findLast(visit => visit.start <= t) ?? visits[0];
    }

    // Where query row `row` of a head is in the tiles.
    place({batch, head, row}) {
        const packed = row * this.group + head % this.group;
        return {batch, head: Math.floor(head / this.group), packed, i: Math.floor(packed / this.rows)};
    }
    // The other way round.
    rowAt(batch, head, packed) {
        const last = data.shape.Nq * this.group - 1, p = clamp(packed, 0, last);
        return {batch, head: head * this.group + p % this.group, row: Math.floor(p / this.group)};
    }

    // Work counts when its phase ends, a block and a kernel when they start.
    addUpCounters() {
        const changes = [];
        const add = (time, name, count) => {
            const work = new Array(data.counters.length).fill(0);
            work[counterIndex[name]] = count;
            changes.push({time, work});
        };
        for (const launch of this.launches) {
            add(launch.start, "launches", 1);
            add(launch.start, "blocks", launch.idle_blocks);
            for (const block of launch.blocks) {
                add(block.start, "blocks", 1);
                block.phases.forEach((phase, k) => {
                    for (const work of phase.work) changes.push({time: phase.end, work: this.work[work]});
                    if (phase.barrier) add(phase.start, "barriers", 1);
                });
            }
        }
        changes.sort((a, b) => a.time - b.time);
        this.times = [];
        this.sums = [];
        let sum = new Array(data.counters.length).fill(0);
        for (const {time, work} of changes) {
            sum = sum.map((x, k) => x + work[k]);
            if (this.times.at(-1) === time) this.sums.pop(), this.times.pop();
            this.times.push(time);
            this.sums.push(sum);
        }
    }
    countersAt(t) {
        const after = upperBound(this.times, t);
        return after === 0 ? new Array(data.counters.length).fill(0) : this.sums[after - 1];
    }

    blocksAt(t) {
        return this.blocks.filter(block => block.start <= t && t < block.end);
    }

    // Every state of a row that a kernel noted, in the order of time. A state is there when its phase ends.
    notes(selected) {
        const {batch, head, packed} = this.place(selected);
        const key = [batch, head, packed].join();
        if (this.notesOfRow.has(key)) return this.notesOfRow.get(key);
        const notes = [];
        for (const block of this.blocks) {
            const before = new Map();  // the last note of each warp
            for (const phase of block.phases) {
                const visit = block.visits[Math.max(phase.visit, 0)];
                if (!visit || visit.batch !== batch || visit.head !== head) continue;
                for (const {warp, first, m, l} of phase.rows) {
                    const k = packed - first;
                    if (k < 0 || k >= m.length) continue;
                    const old = before.get(warp)?.m;
                    const rescale = old === undefined || old === null ? null : 2 ** (old - m[k]);
                    // A second state after the same tile is what warps merged behind the last one.
                    const merged = before.get(warp)?.visit === phase.visit;
                    const note = {block, warp, visit: phase.visit, time: phase.end, m: m[k], l: l[k], rescale, merged};
                    before.set(warp, note);
                    notes.push(note);
                }
            }
        }
        notes.sort((a, b) => a.time - b.time || a.block.number - b.block.number || a.warp - b.warp);
        this.notesOfRow.set(key, notes);
        return notes;
    }
}

function upperBound(sorted, x) {
    let low = 0, high = sorted.length;
    while (low < high) {
        const middle = (low + high) >> 1;
        if (sorted[middle] <= x) low = middle + 1; else high = middle;
    }
    return low;
}

const traces = data.traces.map(json => new Trace(json));
const end = Math.max(...traces.map(trace => trace.end));
const moments = uniqueTimes(block => [...block.phases, ...(block.timeline?.lanes ?? []).filter(lane => lane.kind !== "place")
    .flatMap(lane => lane.spans.map(([start, end]) => ({start, end})))].flatMap(phase => [phase.start, phase.end]));
const tileStarts = uniqueTimes(block => [block.start, ...block.visits.map(visit => visit.start)]);
function uniqueTimes(timesOf) {
    return [...new Set([0, end, ...traces.flatMap(trace => trace.blocks.flatMap(timesOf))])].sort((a, b) => a - b);
}
