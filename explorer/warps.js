// --- The warps of the block at work: their phases, or a timeline -------------------------------------------------------

class Warps {
    constructor(trace, canvas) {
        Object.assign(this, {trace, canvas, timeline: null});  // the layout of the timeline that is drawn
    }

    // What each warp does in these phases. Of a phase it is known what, not when: its kinds of work share it evenly.
    drawPhases(phases) {
        this.timeline = null;
        const {trace, canvas} = this, warps = phases[0].work.length;
        const left = 56, top = 4, height = warps > 4 ? 13 : 17, pitch = height + 2;
        const bottom = top + warps * pitch;
        const {context, width} = prepare(canvas, bottom + 20);
        const from = phases[0].start, to = phases.at(-1).end;
        const x = time => left + (time - from) / (to - from) * (width - left - 8);
        for (let warp = 0; warp < warps; ++warp) {
            const y = top + warp * pitch, intervals = [];
            for (const phase of phases) {
                const done = workOf(trace.work[phase.work[warp]]);
                const kinds = Object.keys(kindNames).filter(kind => done.some(([, , own]) => own === kind));
                const step = (phase.end - phase.start) / kinds.length;
                kinds.forEach((kind, k) => intervals.push({
                    start: phase.start + k * step, end: phase.start + (k + 1) * step, label: kindNames[kind],
                    labelColour: colours["on-kind"],
                    colour: alpha => `color-mix(in srgb, ${colours[kind]} ${100 * alpha}%, transparent)`}));
            }
            context.fillStyle = colours.empty;
            context.fillRect(left, y, width - left - 8, height);
            context.fillStyle = colourOfWarp(warp);
            context.fillRect(left - 6, y, 4, height);
            context.fillStyle = colours.faint;
            context.textAlign = "left";
            context.fillText(`warp ${warp}`, 0, y + height / 2);
            drawLane(context, intervals, {x, y, height, t: state.t});
        }
        const barriers = phases.filter(phase => phase.barrier);
        context.fillStyle = colours.text;
        for (const phase of barriers) context.fillRect(x(phase.start) - 1.5, top - 3, 3, bottom - top + 4);
        context.fillStyle = colours.faint;
        context.textAlign = "left";
        context.fillText(barriers.length === 0 ? "no barrier" :
                         `${barriers.length} barrier${barriers.length === 1 ? "" : "s"}, the thick lines`, left, bottom + 11);
        if (from <= state.t && state.t < to) drawCursor(context, x(state.t), top - 4, bottom + 2);
        canvas.setAttribute("aria-label", `${warps} warps, ${phases.length} phases, ${barriers.length} barriers`);
    }

    // What the loads, places of shared memory and warpgroups of a block do around the time t.
    timelineLayout(block, width) {
        const from = clamp(state.t - timelineWindow / 2, block.start, Math.max(block.start, block.end - timelineWindow));
        const left = 56, scale = (width - left - 8) / timelineWindow, lanes = [];
        let y = 4;
        for (const [k, lane] of block.timeline.lanes.entries()) {
            const before = block.timeline.lanes[k - 1];
            if (before && lane.kind !== "warpgroup" && lane.name.split(" ")[0] !== before.name.split(" ")[0]) y += 4;
            if (before && lane.kind === "products") y += 3;
            const height = lane.kind === "place" ? 9 : 17;
            lanes.push({...lane, y, height});
            y += height + (lane.kind === "place" ? 1 : 0);
        }
        const to = Math.min(block.end, from + timelineWindow);
        return {from, to, left, lanes, bottom: y, x: time => left + (clamp(time, from, to) - from) * scale,
                time: x => clamp(from + (x - left) / scale, from, to)};
    }

    drawTimeline(block) {
        const {canvas} = this, lay = this.timeline = this.timelineLayout(block, canvas.clientWidth);
        const {from, to, left, lanes, bottom, x} = lay;
        const {context, width} = prepare(canvas, bottom + 34);
        for (const {name, kind, start = [], spans, y, height} of lanes) {
            context.fillStyle = colours.empty;
            context.fillRect(left, y, x(to) - left, height - 1);
            context.fillStyle = colours.faint;
            context.textAlign = "left";
            context.font = kind === "place" ? "10px system-ui, sans-serif" : "12px system-ui, sans-serif";
            if (kind !== "warpgroup") context.fillText(name, 0, y + height / 2);
            const seen = spans.filter(([first, last]) => last > from && first < to);
            // Products lie over the time from their issue to their end.
            const inOrder = [...seen.filter(span => span[2] === "flight"), ...seen.filter(span => span[2] !== "flight")];
            drawLane(context, inOrder.map(intervalOf), {x, y, height, t: state.t});
            context.fillStyle = colours.text;
            for (const time of start) if (from <= time && time < to) context.fillRect(x(time) - .6, y, 1.2, height - 1);
        }
        context.font = "12px system-ui, sans-serif";
        context.fillStyle = colours.faint;
        context.textAlign = "center";
        const step = niceStep((to - from) / Math.max(2, (width - left) / 80));
        for (let n = Math.ceil(from / step); n * step <= to; ++n) {
            context.fillText(+(n * step).toFixed(2), clamp(x(n * step), left + 10, width - 14), bottom + 9);
        }
        const {products, during, during_own} = block.timeline, part = value => `${Math.round(100 * value)}%`;
        const long = `tensor units at work ${part(products)} of the time; exponentials during products of another ` +
            `group ${part(during)}, of their own ${part(during_own)}`;
        context.textAlign = "left";
        context.fillText(context.measureText(long).width < width ? long :
                         `tensor units ${part(products)}; exp during others ${part(during)}, own ${part(during_own)}`,
                         0, bottom + 26);
        if (from <= state.t && state.t < to) drawCursor(context, x(state.t), 0, bottom + 2);
        canvas.setAttribute("aria-label", `Timeline of ${lanes.filter(lane => lane.kind !== "warpgroup")
            .map(lane => lane.name).join(", ")}: ${long}`);
    }

    // The lane and the span of the timeline under the pointer.
    spanAt(event) {
        const box = this.canvas.getBoundingClientRect(), lay = this.timeline;
        const y = event.clientY - box.top, time = lay.time(event.clientX - box.left);
        const lane = lay.lanes.find(own => own.y <= y && y < own.y + own.height);
        const under = lane ? lane.spans.filter(([start, end]) => start <= time && time < end) : [];
        return {time, lane, span: under.find(([, , kind]) => kind !== "flight") ?? under[0]};
    }

    describe(event) {
        if (!this.timeline) return null;
        const {lane, span} = this.spanAt(event);
        return lane && span && `${lane.name}: ${spanKinds[span[2]].words}\n` +
                               `${+span[0].toFixed(2)} to ${+span[1].toFixed(2)}`;
    }
}
