// --- What a warp does, in kinds that have a colour -------------------------------------------------------------------

const kindNames = {copy: "copies", read: "ldmatrix", mma: "mma", shuffle: "shuffles in a warp",
                   exchange: "between warps", exp: "exp2, divide", global: "global memory"};
const kindOfCounter = [["async_copies", "copies of 16 bytes", "copy"], ["ldmatrix", "ldmatrix", "read"],
                       ["mma", "mma", "mma"], ["wgmma", "wgmma", "mma"], ["bulk_loads", "bulk loads", "copy"],
                       ["bulk_stores", "bulk stores", "global"], ["shared_exchange_bytes", "B exchanged", "exchange"],
                       ["shuffles", "shuffles", "shuffle"], ["votes", "votes", "shuffle"],
                       ["mbarrier_arrivals", "arrivals", "exchange"],
                       ["mbarrier_waits", "waits at mbarriers", "exchange"],
                       ["named_barriers", "arrivals at named barriers", "exchange"], ["exponentials", "exp2", "exp"],
                       ["divides", "divides", "exp"], ["global_store_bytes", "B to global", "global"]];
// What was counted: [count, words, kind], without what did not occur.
function workOf(counted) {
    const found = kindOfCounter.map(([counter, text, kind]) => [counted[counterIndex[counter]], text, kind]);
    const copied = 16 * counted[counterIndex.async_copies] + counted[counterIndex.bulk_bytes];
    found.push([Math.max(0, counted[counterIndex.global_load_bytes] - copied), "B from global", "global"]);
    return found.filter(([count]) => count > 0);
}

// What is drawn of a block's timeline: colour, how much of it, a label, and words. Of waits there is a thin line.
const spanKinds = {
    copy: {colour: "copy", words: "bulk loads in flight, a place being filled"},
    full: {colour: "copy", weight: .4, words: "a full place"},
    read: {colour: "read", words: "a place being read by products"},
    scores: {colour: "mma", label: "S", words: "S = Q Kᵀ on the tensor units"},
    values: {colour: "values", label: "PV", words: "P V on the tensor units"},
    dP: {colour: "dP", label: "dP", words: "dP = dO Vᵀ on the tensor units"},
    dV: {colour: "values", label: "dV", words: "dV += Pᵀ dO on the tensor units"},
    dK: {colour: "dK", label: "dK", words: "dK += dSᵀ Q on the tensor units"},
    dQ: {colour: "dQ", label: "dQ", words: "dQ += dS K on the tensor units"},
    flight: {colour: "faint", weight: .35, words: "products issued, not over"},
    exp: {colour: "exp", label: "exp", words: "exponentials"},
    barrier: {colour: "exchange", thin: true, words: "waits for its turn, at a barrier"},
    loads: {colour: "faint", thin: true, words: "waits for loads, products or a free place"},
    mbarrier: {colour: "faint", thin: true, words: "waits at an mbarrier"},
    products: {colour: "faint", thin: true, words: "waits for its products"},
    tensor_units: {colour: "faint", thin: true, words: "waits to issue a product"},
};
const blocksInTime = traces.flatMap(trace => trace.blocks.filter(block => block.timeline));
const isInTime = blocksInTime.length > 0;
// What a timeline shows at once: some tiles of whoever takes longest for one, the same of both traces.
const timelineWindow = Math.max(...traces.map(trace => {
    const visits = trace.visits.filter(visit => visit.block.timeline);
    return visits.length === 0 ? 0 : 4 * visits.reduce((sum, v) => sum + v.end - v.start, 0) / visits.length;
})) || end;

// --- Drawing ---------------------------------------------------------------------------------------------------------

const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let colours = {};
function readColours() {
    for (const name of ["page", "card", "text", "faint", "line", "accent", "empty", "saturation", "lightness", "on-kind",
                        ...Object.values(spanKinds).map(({colour}) => colour), ...Object.keys(kindNames)]) {
        colours[name] = style("--" + name);
    }
}
// Neighbours in number are far apart in hue.
const hueOf = block => (block.number * 137.508 + block.launch * 53) % 360;
const warpHues = [212, 32, 142, 285, 0, 182, 55, 325];
const colourOfWarp = (warp, alpha = 1) =>
    `hsl(${warpHues[warp % warpHues.length]} ${colours.saturation} ${colours.lightness} / ${alpha})`;
const colourOf = (block, alpha = 1) =>
    `hsl(${hueOf(block).toFixed(1)} ${colours.saturation} ${colours.lightness} / ${alpha})`;

// A canvas of this height in CSS pixels, as wide as its place; its context draws in CSS pixels.
function prepare(canvas, height) {
    const width = canvas.clientWidth, scale = window.devicePixelRatio || 1;
    if (canvas.style.height !== height + "px") canvas.style.height = height + "px";
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    return {context, width};
}

function hatch(context, x, y, w, h) {
    context.save();
    context.beginPath();
    context.rect(x, y, w, h);
    context.clip();
    context.strokeStyle = colours.card;
    context.globalAlpha = .75;
    context.lineWidth = 1.2;
    context.beginPath();
    for (let k = -h; k < w; k += 6) {
        context.moveTo(x + k, y + h);
        context.lineTo(x + k + h, y);
    }
    context.stroke();
    context.restore();
}

// Intervals in a lane, on an axis of time: blocks on a multiprocessor, or what a warp does. Each has start, end and
// colour(alpha), and may have a label, a label's colour, ticks (times) and an outline. What is over at t is paler.
function drawLane(context, intervals, {x, y, height, t}) {
    const top = y;
    for (const {start, end, colour, label = "", labelColour = colours.text, ticks = [], outlined = false,
                thin = false} of intervals) {
        const left = x(start), w = Math.max(x(end) - left - .8, .6), h = thin ? 3 : height - (height > 5 ? 1 : 0);
        y = thin ? top + height - 4 : top;
        context.fillStyle = colour(.28);
        context.fillRect(left, y, w, h);
        context.fillStyle = colour(t < end ? .95 : .68);
        if (t > start) context.fillRect(left, y, clamp(x(t) - left, 0, w), h);
        if (w / (ticks.length + 1) > 5 && h > 6) {
            context.fillStyle = colours.card;
            for (const tick of ticks) context.fillRect(x(tick) - .4, y + h - 3, .8, 3);
        }
        if (outlined) {
            context.strokeStyle = colours.text;
            context.strokeRect(left, y + .5, w, h - 1);
        }
        if (label !== "" && h >= 11 && w > context.measureText(label).width + 4) {
            context.fillStyle = t > start ? labelColour : colours.text;
            context.textAlign = "center";
            if (context.fillStyle === colours.text) {  // a block's hue may be near the text's
                context.strokeStyle = colours.card;
                context.lineWidth = 2.5;
                context.strokeText(label, left + w / 2, y + h / 2 + .5);
                context.lineWidth = 1;
            }
            context.fillText(label, left + w / 2, y + h / 2 + .5);
        }
    }
}

function cross(context, x, y, w, h) {
    const r = Math.min(w, h) * .22, [a, b] = [x + w / 2, y + h / 2];
    context.strokeStyle = colours.text;
    context.lineWidth = Math.min(2, r / 2);
    context.beginPath();
    for (const side of [-1, 1]) {
        context.moveTo(a - r, b - side * r);
        context.lineTo(a + r, b + side * r);
    }
    context.stroke();
    context.lineWidth = 1;
}

// One tile: `when` is "never", "later", "now" or "done".
function drawTile(context, x, y, w, h, when, visit) {
    const gap = w > 8 ? 1 : .5;
    [x, y, w, h] = [x + gap, y + gap, w - 2 * gap, h - 2 * gap];
    if (when === "never") {
        context.strokeStyle = colours.line;
        context.setLineDash([2, 3]);
        context.strokeRect(x + .5, y + .5, w - 1, h - 1);
        context.setLineDash([]);
        return;
    }
    context.fillStyle = colourOf(visit.block, {later: .13, now: 1, done: .62}[when]);
    context.fillRect(x, y, w, h);
    if (visit.masked && when !== "later") hatch(context, x, y, w, h);
    if (visit.inVain && when !== "later") cross(context, x, y, w, h);
    if (when === "now") {
        context.strokeStyle = colours.text;
        context.lineWidth = 2;
        context.strokeRect(x, y, w, h);
        context.lineWidth = 1;
    }
}

function drawLegend() {
    const block = {number: 1, launch: 0};
    const entries = [["later", false, "not yet"], ["now", false, "at work now"], ["done", false, "visited"],
                     ["done", true, "visited and masked"]];
    const some = test => traces.some(trace => trace.visits.some(test));
    if (some(visit => visit.inVain)) entries.push(["done", true, "visited in vain: no row sees a key of it", true]);
    if (traces.some(trace => trace.visitsOf.size < trace.grids * trace.Tr * trace.Tc)) {
        entries.push(["never", false, "never visited"]);
    }
    const kinds = Object.entries(kindNames).map(([kind, text]) => {
        const span = document.createElement("span"), mark = document.createElement("i");
        mark.style.background = `var(--${kind})`;
        span.append(mark, text);
        return span;
    });
    byId("legend").replaceChildren(...entries.map(([when, masked, text, inVain]) => {
        const span = document.createElement("span"), canvas = document.createElement("canvas");
        span.append(canvas, text);
        requestAnimationFrame(() => {
            drawTile(prepare(canvas, 14).context, 1, 0, 16, 14, when, {block, masked, inVain});
        });
        return span;
    }), ...kinds);
    if (!isInTime) return;
    const drawn = new Set(blocksInTime.flatMap(block => block.timeline.lanes.flatMap(lane => lane.spans.map(([, , kind]) =>
        ["mbarrier", "products", "tensor_units"].includes(kind) ? "loads" : kind))));  // these look the same
    for (const kind of Object.keys(spanKinds).filter(kind => drawn.has(kind))) {
        const span = document.createElement("span"), canvas = document.createElement("canvas");
        span.append(canvas, spanKinds[kind].words);
        byId("legend").append(span);
        requestAnimationFrame(() => drawLane(prepare(canvas, 14).context, [intervalOf([0, 16, kind])],
                                             {x: time => 1 + time, y: 1, height: 12, t: 16}));
    }
}

// A span of a timeline as drawLane has it.
function intervalOf([start, end, kind]) {
    const {colour, weight = 1, label = "", thin = false} = spanKinds[kind];
    return {start, end, label, thin, labelColour: colours["on-kind"],
            colour: alpha => `color-mix(in srgb, ${colours[colour]} ${100 * alpha * weight}%, transparent)`};
}

function drawCursor(context, x, from, to) {
    context.strokeStyle = colours.text;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x, from);
    context.lineTo(x, to);
    context.stroke();
    context.lineWidth = 1;
}

function niceStep(least) {
    const power = 10 ** Math.floor(Math.log10(least));
    return power * [1, 2, 5, 10].find(k => k * power >= least);
}
