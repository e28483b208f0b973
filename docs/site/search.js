"use strict";
// The site's search. It looks through the text that search_index.js holds, which is loaded when a reader begins to
// search: titles before headings before text, lessons before the rest, and the names of symbols last.

const Search = {
    mostPages: 12, mostSymbols: 6,

    // What finds a query's words, one after the other, whatever stands between them: "split-Q", "split Q" and
    // "split_q" are the same. Short words are whole ones, and a plural finds its singular.
    pattern(words, between = "[^\\p{L}\\p{N}]*") {
        const edge = "[\\p{L}\\p{N}]";
        const before = words[0].length < 3 ? `(?<!${edge})` : "", after = words.at(-1).length < 3 ? `(?!${edge})` : "";
        return new RegExp(before + words.join(between) + after, "giu");
    },
    wordsOf(query) {
        return (query.match(/[\p{L}\p{N}]+/gu) ?? []).map(word => word.length > 4 ? word.replace(/s$/i, "") : word);
    },

    // The pages and symbols of the index that a query finds, the best first: title, heading, text, and the address.
    find(query, index) {
        const words = Search.wordsOf(query);
        if (words.length === 0) return [];
        const found = Search.pages(words, Search.pattern(words), index);
        // "splitq": the words in one, or letters that the text separates
        const letters = [...words.join("")];
        const pages = found.length > 0 || letters.length < 4 ? found :
            Search.pages([words.join("")], Search.pattern(letters, "[^\\p{L}\\p{N}]?"), index);
        const name = Search.pattern(words), symbols = index.symbols.filter(([symbol]) => symbol.match(name))
            .sort((a, b) => a[0].length - b[0].length).slice(0, Search.mostSymbols)
            .map(([symbol, kind, address]) => ({title: symbol, heading: kind, text: "", address}));
        return [...pages.slice(0, Search.mostPages), ...symbols];
    },

    pages(words, phrase, index) {
        const each = words.map(word => Search.pattern([word]));
        const hasAll = text => each.every(word => text.match(word));
        const count = text => (text.match(phrase) ?? []).length;
        // A title that has the words whole comes first: "stage" is not about staged output.
        const whole = new RegExp(`(?<![\\p{L}\\p{N}])(?:${phrase.source})s?(?![\\p{L}\\p{N}])`, "iu");
        const found = [];
        for (const [kind, file, title, sections] of index.pages) {
            let best = null, matches = 0;
            for (const [anchor, heading, text] of sections) {
                const own = count(text);
                matches += own;
                const tier = heading && count(heading) > 0 ? 1 : own > 0 ? 2 : hasAll(`${heading} ${text}`) ? 4 : 9;
                if (tier < 9 && (!best || tier < best.tier || (tier === best.tier && own > best.own))) {
                    best = {tier, own, anchor, heading, text};
                }
            }
            const ofTitle = whole.test(title) ? 0 : count(title) > 0 ? 1 : hasAll(title) ? 3 : 9;
            if (ofTitle === 9 && !best) continue;
            const tier = Math.min(ofTitle, best ? best.tier : 9);
            const top = {anchor: "", heading: "", text: best?.text ?? sections[0][2]};
            const {anchor, heading, text} = ofTitle === 0 || !best ? top : best;
            found.push({tier, kind, matches, title, heading, text: Search.excerpt(text, phrase, each),
                        address: file + (anchor ? `#${anchor}` : "")});
        }
        // Sorting keeps the order of reading among equals. Titles are short, so they are equals.
        const isOther = page => page.kind === "page";
        return found.sort((a, b) => a.tier - b.tier || isOther(a) - isOther(b) ||
                                    (a.tier > 0 ? b.matches - a.matches : 0));
    },

    // The text around the first match: pieces, every other one of them a match.
    excerpt(text, phrase, each) {
        const marked = text.match(phrase) ? phrase : new RegExp(each.map(word => word.source).join("|"), "giu");
        const at = Math.max(0, text.search(marked)), first = at < 60 ? 0 : text.indexOf(" ", at - 60) + 1;
        const end = first + 170;
        const shown = (first > 0 ? "… " : "") + text.slice(first, end) + (end < text.length ? " …" : "");
        return shown.split(new RegExp(`(${marked.source})`, "giu"));
    },
};

if (typeof document !== "undefined") document.addEventListener("DOMContentLoaded", () => {
    const box = document.getElementById("site-search"), results = document.createElement("ol");
    let index = null, chosen = -1;
    results.id = "site-results";
    results.hidden = true;
    document.body.append(results);

    function load() {
        if (load.begun) return;
        load.begun = true;
        const script = document.createElement("script");
        script.src = box.dataset.index;
        script.onload = () => { index = searchIndex; show(); };
        document.head.append(script);
    }

    function close() {
        results.hidden = true;
        box.setAttribute("aria-expanded", "false");
    }

    function show() {
        if (!index || box.value.trim() === "") return close();
        const found = Search.find(box.value, index);
        results.replaceChildren(...found.map(({kind, title, heading, text, address}) => {
            const item = document.createElement("li"), link = document.createElement("a");
            const add = (tag, ...content) => {
                const element = document.createElement(tag);
                element.append(...content);
                link.append(element);
            };
            link.href = address;
            add("b", title);
            if (kind === "notebook") add("span", "notebook");
            if (heading) add("span", heading);
            if (text.length > 0) add("p", ...text.map((piece, k) => {
                if (k % 2 === 0) return piece;
                const mark = document.createElement("mark");
                mark.append(piece);
                return mark;
            }));
            item.append(link);
            return item;
        }));
        if (found.length === 0) results.innerHTML = "<li class='none'>Nothing has these words.</li>";
        const place = box.getBoundingClientRect();
        results.style.top = `${place.bottom + 4}px`;
        results.hidden = false;
        const room = document.documentElement.clientWidth - results.offsetWidth - 8;
        results.style.left = `${Math.max(8, Math.min(place.left, room))}px`;
        box.setAttribute("aria-expanded", "true");
        choose(-1);
    }

    function choose(number) {
        const links = [...results.querySelectorAll("a")];
        chosen = links.length === 0 ? -1 : (number + links.length + 1) % (links.length + 1);
        if (chosen === links.length || number === -1) chosen = -1;
        links.forEach((link, k) => link.classList.toggle("chosen", k === chosen));
        links[chosen]?.scrollIntoView({block: "nearest"});
    }

    box.addEventListener("focus", () => { load(); show(); });
    box.addEventListener("input", () => { load(); show(); });
    box.addEventListener("keydown", event => {
        if (event.key === "Escape") close();
        else if (event.key === "ArrowDown") choose(chosen + 1);
        else if (event.key === "ArrowUp") choose(chosen === -1 ? results.querySelectorAll("a").length - 1 : chosen - 1);
        else if (event.key === "Enter") (results.querySelector("a.chosen") ?? results.querySelector("a"))?.click();
        else return;
        event.preventDefault();
    });
    results.addEventListener("click", close);
    document.addEventListener("click", event => {
        if (event.target !== box && !results.contains(event.target)) close();
    });
    document.addEventListener("keydown", event => {
        if (event.key !== "/" || event.target.matches("input, textarea, select")) return;
        event.preventDefault();
        box.focus();
    });
});
