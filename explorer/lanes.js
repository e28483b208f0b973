// --- The blocks on multiprocessors -----------------------------------------------------------------------------------

class Lanes {
    constructor(trace, canvas) {
        Object.assign(this, {trace, canvas});
    }

    layOut(width) {
        const perSM = this.trace.placesPerMultiprocessor(), lanes = data.multiprocessors * perSM;
        const height = clamp(400 / lanes, 1, 17), gap = height > 6 ? 5 : height > 2 ? 1 : .3;
        const left = 46;
        return {perSM, lanes, height, left, y: lane => 4 + lane * height + Math.floor(lane / perSM) * gap,
                x: time => left + time / end * (width - left - 8),
                time: x => (x - left) / (width - left - 8) * end};
    }

    draw(followed) {
        const {trace, canvas} = this, t = state.t;
        const lay = this.layout = this.layOut(canvas.clientWidth);
        const bottom = lay.y(lay.lanes - 1) + lay.height;
        const {context, width} = prepare(canvas, Math.ceil(bottom) + 24);
        context.fillStyle = colours.faint;
        context.textAlign = "left";
        for (let sm = 0; sm < data.multiprocessors; ++sm) {
            const y = lay.y(sm * lay.perSM);
            context.fillStyle = colours.empty;
            context.fillRect(lay.left, y, width - lay.left - 8, lay.height * lay.perSM);
            context.fillStyle = colours.faint;
            if (lay.height * lay.perSM >= 11) context.fillText(`SM ${sm}`, 2, y + lay.height * lay.perSM / 2);
        }
        const chosen = new Set(followed);
        for (let lane = 0; lane < lay.lanes; ++lane) {
            const intervals = trace.blocks.filter(block => block.lane === lane).map(block => ({
                start: block.start, end: block.end, label: String(block.number), outlined: chosen.has(block),
                ticks: block.visits.slice(1).map(visit => visit.start), colour: alpha => colourOf(block, alpha)}));
            drawLane(context, intervals, {x: lay.x, y: lay.y(lane), height: lay.height, t});
        }
        context.fillStyle = colours.faint;
        for (const launch of trace.launches.slice(1)) {
            context.fillRect(lay.x(launch.start) - 1, 0, 1, bottom + 4);
        }
        context.textAlign = "center";
        const step = niceStep(end / Math.max(2, (width - lay.left) / 80));
        for (let time = 0; time <= end; time += step) context.fillText(+time.toFixed(2), lay.x(time), bottom + 14);
        drawCursor(context, lay.x(t), 0, bottom + 6);
        canvas.setAttribute("aria-label",
                            `${trace.blocks.length} blocks on ${data.multiprocessors} multiprocessors of ` +
                            `${lay.perSM} places; the last one ends at ${trace.end}`);
    }

    blockAt(event) {
        const box = this.canvas.getBoundingClientRect(), lay = this.layout;
        const x = event.clientX - box.left, y = event.clientY - box.top, time = lay.time(x);
        const block = this.trace.blocks.find(b => b.start <= time && time < b.end &&
                                                  lay.y(b.lane) <= y && y < lay.y(b.lane) + lay.height);
        return {time, block};
    }

    describe(event) {
        const {block} = this.blockAt(event);
        return block && `block ${block.number}, ${block.visits.length} tiles\n` +
                        `${+block.start.toFixed(2)} to ${+block.end.toFixed(2)}`;
    }
}
