// --- What is shown: time, row and speed. The address keeps it. -------------------------------------------------------

const speeds = [0.5, 1, 2, 4, 8, 16, 32, 64, 128];
const usualSpeed = speeds.find(speed => end / speed <= 25) ?? speeds.at(-1);
const state = {t: 0, batch: 0, head: 0, row: data.shape.Nq - 1, speed: usualSpeed};  // the last row has the most tiles
let playing = false;

function readAddress() {
    const given = new URLSearchParams(location.hash.slice(1));
    const number = (name, most, whole) => {
        const x = Number(given.get(name));
        if (given.get(name) === null || !Number.isFinite(x)) return;
        state[name] = clamp(whole ? Math.floor(x) : x, 0, most);
    };
    number("t", end, false);
    number("batch", data.shape.B - 1, true);
    number("head", data.shape.H - 1, true);
    number("row", data.shape.Nq - 1, true);
    if (speeds.includes(Number(given.get("speed")))) state.speed = Number(given.get("speed"));
}
function writeAddress() {
    const parts = [`t=${+state.t.toFixed(4)}`];
    if (data.shape.B > 1) parts.push(`batch=${state.batch}`);
    if (data.shape.H > 1) parts.push(`head=${state.head}`);
    parts.push(`row=${state.row}`);
    if (state.speed !== usualSpeed) parts.push(`speed=${state.speed}`);
    history.replaceState(null, "", "#" + parts.join("&"));
}

function show(changes) {
    Object.assign(state, changes);
    state.t = clamp(state.t, 0, end);
    for (const [name, size] of [["batch", "B"], ["head", "H"], ["row", "Nq"]]) {
        state[name] = clamp(Math.floor(state[name]) || 0, 0, data.shape[size] - 1);
    }
    if (!playing) writeAddress();
    draw();
}

// --- The page --------------------------------------------------------------------------------------------------------

const panels = traces.map(trace => new Panel(trace));

function draw() {
    byId("scrub").value = state.t;
    byId("scrub").setAttribute("aria-valuetext", `${state.t.toFixed(2)} of ${end}`);
    byId("time").textContent = `t = ${state.t.toFixed(2)} of ${+end.toFixed(2)}`;
    byId("speed").value = state.speed;
    for (const name of ["batch", "head", "row"]) {
        if (document.activeElement !== byId(name) || byId(name).value !== "") byId(name).value = state[name];
    }
    for (const panel of panels) panel.draw();
    drawCounters();
}

function step(times, direction) {
    pause();
    const tolerance = 1e-6, k = upperBound(times, state.t + tolerance);
    const next = direction > 0 ? times[k] : times[upperBound(times, state.t - tolerance) - 1];
    show({t: next ?? (direction > 0 ? end : 0)});
}

let lastFrame = 0;
function play() {
    if (state.t >= end) state.t = 0;
    playing = true;
    byId("play").textContent = "Pause";
    lastFrame = performance.now();
    requestAnimationFrame(frame);
}
function pause() {
    if (!playing) return;
    playing = false;
    byId("play").textContent = "Play";
    writeAddress();
}
function frame(now) {
    if (!playing) return;
    const t = state.t + (now - lastFrame) / 1000 * state.speed;
    lastFrame = now;
    if (t >= end) {
        pause();
        return show({t: end});
    }
    show({t});
    requestAnimationFrame(frame);
}
const toggle = () => playing ? pause() : play();

function onKey(event) {
    const target = event.target;
    if (event.ctrlKey || event.altKey || event.metaKey || byId("help").open) return;
    if (target.matches("select, input[type=number]")) return;
    if (event.key === " " && target.matches("button")) return;  // it presses the button
    const actions = {
        ArrowRight: () => step(event.shiftKey ? tileStarts : moments, 1),
        ArrowLeft: () => step(event.shiftKey ? tileStarts : moments, -1),
        PageDown: () => { pause(); show({t: state.t + end / 10}); },
        PageUp: () => { pause(); show({t: state.t - end / 10}); },
        Home: () => { pause(); show({t: 0}); },
        End: () => { pause(); show({t: end}); },
        j: () => show({row: state.row + 1}),
        k: () => show({row: state.row - 1}),
        " ": toggle,
        "?": () => byId("help").showModal(),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
}

function start() {
    const names = traces.map(trace => trace.stage).join(" and ");
    document.title = `${names}: schedule explorer`;
    byId("title").textContent = `Schedule explorer: ${names}`;
    const {B, H, Hkv, Nq, Nk, d} = data.shape;
    const many = (n, what) => `${inText(n)} ${what}${n === 1 ? "" : "s"}`;
    byId("problem").textContent =
        `B = ${B}, ${many(H, "head")} over ${Hkv}, ${many(Nq, "query row")}, ${many(Nk, "key")}, d = ${d}, ` +
        `${data.dtype}${data.causal ? ", causal" : ""}; ` +
        `a machine of ${many(data.multiprocessors, "multiprocessor")}`;
    const units = [];
    if (traces.some(trace => trace.blocks.some(block => !block.timeline))) {
        units.push(`t counts mma and nothing else: one unit is what 16 query rows and 64 keys take, ${d} mma. ` +
                   "Copies, exponentials, exchange and barriers take no time here; on a GPU they do.");
    }
    if (isInTime) {
        units.push(`Of blocks with Hopper's instructions t counts clocks of a multiprocessor: one unit is ${d}, what ` +
                   "its tensor units take for 16 query rows and 64 keys. Exponentials take time besides, 4 a clock in " +
                   "each quarter of it, and bulk loads, 64 bytes a clock behind 600 clocks; all else takes none.");
    }
    byId("unit").replaceChildren(...units.flatMap((text, k) => k === 0 ? [text] : [document.createElement("br"), text]));
    if (window !== window.top) {
        document.documentElement.classList.add("embedded");
        byId("alone").onclick = () => { byId("alone").href = location.href; };
    }
    const places = traces.map(trace => `${trace.placesPerMultiprocessor()} (${trace.stage})`).join(" and ");
    if (new Set(traces.map(trace => trace.placesPerMultiprocessor())).size > 1) {
        byId("problem").append(document.createElement("br"),
            `A multiprocessor has room for ${places} blocks, and the model lets each go at the same pace: ` +
            "compare what is visited and counted, not when the stages end.");
    }
    byId("places").textContent = `a multiprocessor has room for ${places} at once.`;
    if (traces.length < 2) document.querySelector(".two").remove();
    byId("scrub").max = end;
    for (const speed of speeds) byId("speed").append(new Option(`${speed}/s`, speed));
    byId("batch-label").hidden = B === 1;
    byId("head-label").hidden = H === 1;
    byId("batch").max = B - 1;
    byId("head").max = H - 1;
    byId("row").max = Nq - 1;

    byId("panels").append(...panels.map(panel => panel.element));
    makeCounterTable();
    byId("first").onclick = () => { pause(); show({t: 0}); };
    byId("last").onclick = () => { pause(); show({t: end}); };
    byId("back").onclick = () => step(moments, -1);
    byId("forward").onclick = () => step(moments, 1);
    byId("play").onclick = toggle;
    byId("scrub").oninput = () => { pause(); show({t: Number(byId("scrub").value)}); };
    byId("speed").onchange = () => show({speed: Number(byId("speed").value)});
    for (const name of ["batch", "head", "row"]) byId(name).oninput = () => {
        if (byId(name).value !== "") show({[name]: Number(byId(name).value)});
    };
    byId("help-button").onclick = () => byId("help").showModal();
    document.addEventListener("keydown", onKey);
    addEventListener("hashchange", () => { readAddress(); draw(); });
    const recolour = () => { readColours(); drawLegend(); draw(); };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
    let width = 0;
    new ResizeObserver(() => {
        if (width !== byId("panels").clientWidth) draw();
        width = byId("panels").clientWidth;
    }).observe(byId("panels"));
    readAddress();
    recolour();
}
start();
