// The figures of docs/one_mma.md: what a lane holds of one mma m16n8k16, which address it passes to ldmatrix, and the
// banks of shared memory that eight such addresses meet. They take the place of the still pictures that the page has
// without JavaScript. The formulas are those of stages/device.cuh under the same names; tests/explorer.py
// compares them.

"use strict";

const oneMma = (() => {
    const div = (a, b) => Math.floor(a / b);
    // As stages/device.cuh: where accumulator c of a lane is, and where a lane points ldmatrix.
    const row_of = c => div(c, 2) % 2, column_of = c => div(c, 4) * 8 | c % 2;
    const a_row = lane => lane % 16, a_column = lane => div(lane, 16) * 8;
    const b_row = lane => lane % 8 + div(lane, 16) * 8, b_column = lane => div(lane, 8) % 2 * 8;

    // The elements (row, column) that a lane holds, in the order of its registers: pairs of a[0] to a[3] and of b0 and
    // b1, and d[0] to d[3].
    const pair = (row, column) => [[row, column], [row, column + 1]];
    const heldOfA = lane => [0, 1, 2, 3].flatMap(k => pair(div(lane, 4) + k % 2 * 8, lane % 4 * 2 + div(k, 2) * 8));
    const heldOfB = lane => [0, 1].flatMap(k => pair(div(lane, 4), lane % 4 * 2 + k * 8))
        .map(([column, k]) => [k, column]);
    const heldOfC = lane => [0, 1, 2, 3].map(c => [div(lane, 4) + 8 * row_of(c), lane % 4 * 2 + column_of(c)]);

    const A = (row, k) => (row + k) % 7 % 3, B = (k, column) => (k + column) % 11 % 4;
    const products = (row, column) => [...Array(16).keys()].map(k => [A(row, k), B(k, column)]);
    const C = (row, column) => products(row, column).reduce((sum, [a, b]) => sum + a * b, 0);

    // Bytes from the start of a tile of 16-bit elements to element (row, column).
    const layouts = {
        plain: {words: "plain, 64 elements", address: (row, column) => 128 * row + 2 * column},
        padded: {words: "padded to 72", address: (row, column) => 144 * row + 2 * column},
        swizzled: {words: "XOR-swizzled, 64", address: (row, column) =>
            128 * row + 16 * (div(column, 8) ^ row % 8) + column % 8 * 2},
    };
    // The words of 4 bytes that reads of 16 bytes at these addresses want of each of the 32 banks.
    const wordsByBank = addresses => {
        const banks = Array.from({length: 32}, () => new Set());
        for (const address of addresses)
            for (let word = address / 4; word < address / 4 + 4; ++word) banks[word % 32].add(word);
        return banks;
    };
    const ways = addresses => Math.max(...wordsByBank(addresses).map(words => words.size));

    return {row_of, column_of, a_row, a_column, b_row, b_column, heldOfA, heldOfB, heldOfC, A, B, C, products, layouts,
            wordsByBank, ways, div};
})();

addEventListener("DOMContentLoaded", () => {
    const {div, layouts} = oneMma;
    const state = {lane: 5, shown: 5, source: "K", layout: "plain", element: null};
    const parts = [];  // each draws itself from the state
    const draw = () => parts.forEach(part => part());

    function make(parent, tag, properties = {}, text = "") {
        const element = parent.appendChild(document.createElement(tag));
        for (const [name, value] of Object.entries(properties)) element.setAttribute(name, value);
        element.textContent = text;
        return element;
    }

    // A lane is shown while the mouse is on it, and stays once it is chosen.
    function show(lane, element = null) {
        Object.assign(state, {shown: lane, element});
        draw();
    }
    function choose(lane, element = null) {
        state.lane = lane;
        show(lane, element);
    }
    function offer(cell, lane, element = null) {
        cell.addEventListener("pointerenter", event => event.pointerType === "mouse" && show(lane, element));
        cell.addEventListener("click", () => choose(lane, element));
    }

    // Radio buttons, one of which is chosen: the browser's own keys work.
    function choice(parent, name, legend, words) {
        const set = make(parent, "fieldset");
        make(set, "legend", {}, legend);
        for (const [value, text] of Object.entries(words)) {
            const label = make(set, "label");
            const input = make(label, "input", {type: "radio", name: `one-mma-${name}`, value});
            input.checked = state[name] === value;
            input.addEventListener("change", () => {
                state[name] = value;
                draw();
            });
            label.append(` ${text}`);
        }
    }

    // The lanes as buttons, a row for each g and a column for each t; arrows move among them.
    function lanes(parent) {
        const box = make(parent, "div", {class: "lanes", role: "group", "aria-label": "Lane: 4 g + t"});
        make(box, "span", {}, "");
        for (let t = 0; t < 4; ++t) make(box, "span", {}, `t ${t}`);
        const buttons = [];
        for (let lane = 0; lane < 32; ++lane) {
            if (lane % 4 === 0) make(box, "span", {}, `g ${lane / 4}`);
            const button = make(box, "button", {type: "button", "aria-label": `lane ${lane}`}, String(lane));
            offer(button, lane);
            button.addEventListener("focus", () => choose(lane));
            buttons.push(button);
        }
        const steps = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -4, ArrowDown: 4};
        box.addEventListener("keydown", event => {
            if (event.key in steps) {
                event.preventDefault();
                buttons[(state.lane + steps[event.key] + 32) % 32].focus();
            }
        });
        parts.push(() => buttons.forEach((button, lane) => {
            button.setAttribute("aria-pressed", lane === state.shown);
            button.tabIndex = lane === state.lane ? 0 : -1;
        }));
        return box;
    }

    // A matrix of cells; a cell shows its value and leads to the lane that holds it.
    function matrix(parent, name, columns, value, laneOf) {
        const box = make(parent, "div", {class: "matrix", "data-name": name});
        make(box, "b", {}, `${name}, 16 × ${columns}`);
        const grid = make(box, "div", {class: "cells", style: `--columns: ${columns}`, "aria-hidden": "true"});
        make(grid, "span");
        for (let c = 0; c < columns; ++c) make(grid, "span", {}, String(c));
        const cells = [];
        for (let r = 0; r < 16; ++r) {
            make(grid, "span", {}, String(r));
            for (let c = 0; c < columns; ++c) {
                const cell = make(grid, "i", {"data-at": `${r},${c}`}, String(value(r, c)));
                offer(cell, laneOf(r, c), name === "C" ? [r, c] : null);
                cells.push(cell);
            }
        }
        grid.addEventListener("pointerleave", event => event.pointerType === "mouse" && show(state.lane));
        return (held, summed, pointed) => cells.forEach((cell, n) => {
            const r = div(n, columns), c = n % columns;
            cell.className = [held.some(at => at[0] === r && at[1] === c) && "held", summed(r, c) && "summed",
                              pointed(r, c) && "pointed"].filter(Boolean).join(" ");
        });
    }

    function fragments(parent) {
        make(parent, "p", {class: "hint"},
             "Point at a lane or an element, or tap it; arrow keys move among the lanes.");
        const top = make(parent, "div", {class: "top"});
        const picker = lanes(top);
        picker.addEventListener("pointerleave", event => event.pointerType === "mouse" && show(state.lane));
        const words = make(top, "div", {class: "words", "aria-live": "polite"});
        choice(parent, "source", "B from", {K: "rows of K: ldmatrix", V: "rows of V: ldmatrix.trans"});
        const box = make(parent, "div", {class: "matrices"});
        const drawA = matrix(box, "A", 16, oneMma.A, (r, k) => r % 8 * 4 + div(k % 8, 2));
        const right = make(box, "div", {class: "matrices"});
        const drawB = matrix(right, "B", 8, oneMma.B, (k, c) => c * 4 + div(k % 8, 2));
        const drawC = matrix(right, "C", 8, oneMma.C, (r, c) => r % 8 * 4 + div(c, 2));
        make(parent, "p", {class: "legend"}).innerHTML =
            '<i class="held"></i> held by the lane <i class="summed"></i> summed for one element of C ' +
            '<i class="pointed"></i> 16 bytes whose address the lane passes';
        parts.push(() => {
            const lane = state.shown, g = div(lane, 4), t = lane % 4;
            const A = oneMma.heldOfA(lane), B = oneMma.heldOfB(lane), C = oneMma.heldOfC(lane);
            const [row, column] = state.element ?? C[0];
            const aRow = oneMma.a_row(lane), aColumn = oneMma.a_column(lane);
            // Of B the address is in 16 columns: the upper 8 of them are those of the next mma.
            const fromK = state.source === "K";
            const first = fromK ? [oneMma.b_column(lane), oneMma.b_row(lane)] : [aRow, aColumn];
            drawA(A, r => r === row, (r, k) => r === aRow && div(k, 8) * 8 === aColumn);
            drawB(B, (k, c) => c === column, (k, c) =>
                fromK ? c === first[1] && div(k, 8) * 8 === first[0] : k === first[0] && first[1] === 0);
            drawC(C, (r, c) => r === row && c === column, () => false);
            const values = (elements, value) => elements.map(([r, c]) => value(r, c));
            const pairs = (elements, value) => values(elements, value).join(" ").replace(/(\S+ \S+) /g, "$1, ");
            const sum = oneMma.products(row, column).map(([a, b]) => `${a}·${b}`).join(" + ");
            const next = first[1] >= 8 ? " (column 8 and up: the next mma)" : "";
            words.replaceChildren();
            make(words, "p").innerHTML = `<b>Lane ${lane}</b>: g = ${g}, t = ${t}`;
            make(words, "p", {}, `a[0] to a[3]: ${pairs(A, oneMma.A)}`);
            make(words, "p", {}, `b0, b1: ${pairs(B, oneMma.B)}`);
            make(words, "p", {}, `d[0] to d[3]: ${values(C, oneMma.C).join(", ")}`);
            make(words, "p", {class: "address"}, `It passes the address of A[${aRow}][${aColumn}], and of ` +
                `${fromK ? `K[${first[1]}][${first[0]}]` : `V[${first[0]}][${first[1]}]`}, ` +
                `which is B[${first[0]}][${first[1]}]${next}.`);
            make(words, "p", {class: "sum"}, `C[${row}][${column}] = ${sum} = ${oneMma.C(row, column)}`);
        });
    }

    function banks(parent) {
        choice(parent, "layout", "Rows",
               Object.fromEntries(Object.entries(layouts).map(([name, {words}]) => [name, words])));
        const grid = make(parent, "div", {class: "cells banks", style: "--columns: 8", "aria-hidden": "true"});
        make(grid, "span", {}, "bank");
        for (let group = 0; group < 8; ++group) make(grid, "span", {}, `${4 * group} …`);
        const cells = [], labels = [];
        for (let r = 0; r < 8; ++r) {
            labels.push(make(grid, "span"));
            for (let group = 0; group < 8; ++group) {
                const cell = make(grid, "i");
                cell.addEventListener("click", () => choose(div(state.shown, 8) * 8 + r));
                cells.push(cell);
            }
        }
        make(grid, "span", {}, "words");
        const counts = [...Array(8)].map(() => make(grid, "span", {class: "count"}));
        const words = make(parent, "p", {class: "ways", "aria-live": "polite"});
        parts.push(() => {
            // The eight lanes whose addresses are of one 8 x 8 matrix of A, and so of one pass.
            const first = div(state.shown, 8) * 8, address = layouts[state.layout].address;
            const readers = [...Array(8).keys()].map(n => first + n);
            const addresses = readers.map(lane => address(oneMma.a_row(lane), oneMma.a_column(lane)));
            const wanted = oneMma.wordsByBank(addresses).map(bank => bank.size), ways = oneMma.ways(addresses);
            cells.forEach(cell => {
                cell.textContent = "";
                cell.className = "";
            });
            readers.forEach((lane, n) => {
                const row = oneMma.a_row(lane);
                labels[n].textContent = `row ${row}`;
                for (let piece = 0; piece < 8; ++piece) {
                    const start = address(row, 8 * piece), cell = cells[8 * n + div(start, 16) % 8];
                    cell.textContent = piece;
                    if (start !== addresses[n]) continue;
                    cell.classList.add("read");
                    cell.classList.toggle("conflict", wanted[start / 4 % 32] > 1);
                    cell.classList.toggle("pointed", lane === state.shown);
                }
            });
            counts.forEach((count, group) => { count.textContent = wanted[4 * group]; });
            words.innerHTML = `Lanes ${first} to ${first + 7} read bytes ${addresses.join(", ")}: ` +
                `<b>${ways}-way</b>, ${ways > 1 ? `${ways} passes` : "no conflict, one pass"}`;
        });
    }

    const figures = {fragments, banks};
    for (const place of document.querySelectorAll(".one-mma")) {
        figures[place.dataset.figure](place);
        place.nextElementSibling.hidden = true;  // the still picture
    }
    draw();
});
