"use strict";
// The site's search. It looks through the text that search_index.js holds, which is loaded when a reader begins to
// search. Pages are rated by where they have the words and how rare these are; the names of symbols come last.

const Search = {
    mostPages: 12, mostSymbols: 6,
    // What a match in each place is worth: the title, words that mean the page, a heading, the text.
    ofTitle: 12, ofAlias: 12, ofHeading: 5, ofText: 3,
    // What a page is worth beside others with the same words; what is not listed, 1.
    kinds: {lesson: 1.2, glossary: 1.1, notebook: 0.8, other: 0.6, changelog: 0.1},
    empty: new Set("a an and are as at be by can do does for from how i in is it my of on or the this to what when where which why with".split(" ")),

    // A word without its ending: "paged", "pages" and "page" are the same. Short words stay as they are.
    stemOf(word) {
        if (word.length <= 3 || /\d/.test(word)) return word;
        const stem = word.replace(/(?:ies|(?<!s|u|i)s)$/, "").replace(/(?<=[aeiouy].*)(?:ing|(?<!e)ed)$/, "")
            .replace(/(?<=..)e$/, "").replace(/([^aeiouls])\1$/, "$1");
        return stem.length < 3 ? word : stem;
    },
    // What finds a word: short ones are whole, up to a plural's s; short stems take endings, so that "grading" is not
    // about gradients; others begin a word, and long ones also a part of one.
    termOf(word) {
        const letter = "[\\p{L}\\p{N}]", stem = Search.stemOf(word);
        if (word.length <= 3) return `(?<!${letter})${word}s?(?!${letter})`;
        if (stem.length >= 5) return stem + "\\p{L}*";
        return `(?<!${letter})${stem}` + (stem === word ? "\\p{L}*" :
            `${stem.at(-1)}?(?:e|es|s|ed|er|ers|ing|ings|y|ies)?(?!${letter})`);
    },
    // What finds words one after the other, whatever stands between them: "split-Q", "split Q" and "split_q" are the
    // same.
    pattern(terms) {
        return new RegExp(terms.join("[^\\p{L}\\p{N}]*"), "giu");
    },
    wordsOf(query) {
        return (query.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []);
    },

    // The pages and symbols of the index that a query finds, the best first: title, heading, text, and the address.
    find(query, index) {
        const all = Search.wordsOf(query), telling = all.filter(word => !Search.empty.has(word));
        const words = telling.length > 0 ? telling : all;
        if (words.length === 0) return [];
        const terms = words.map(Search.termOf);
        // "splitq": the words in one, or letters that the text separates
        const letters = [...words.join("")];
        let pages = Search.pages(terms, index);
        if (pages.length === 0 && letters.length >= 4) pages = Search.pages([letters.join("[^\\p{L}\\p{N}]?")], index);
        const name = Search.pattern(terms), symbols = index.symbols.filter(([symbol]) => symbol.match(name))
            .sort((a, b) => a[0].length - b[0].length).slice(0, Search.mostSymbols)
            .map(([symbol, kind, address]) => ({title: symbol, heading: kind, text: "", address}));
        return [...pages.slice(0, Search.mostPages), ...symbols];
    },

    pages(terms, index) {
        const each = terms.map(term => Search.pattern([term])), phrase = Search.pattern(terms);
        const count = (text, pattern) => (text.match(pattern) ?? []).length;
        // In how many places of each page each term is: of a title and of an alias, of headings, of texts.
        const pages = index.pages.map(([kind, file, title, sections, also]) => ({kind, file, title, sections, also,
            length: sections.reduce((sum, [, , text]) => sum + text.length, 500),
            places: each.map(term => [count(title, term), count(also, term),
                                      sections.reduce((sum, [, heading]) => sum + count(heading, term), 0),
                                      sections.reduce((sum, [, , text]) => sum + count(text, term), 0)])}));
        const usual = pages.reduce((sum, page) => sum + page.length, 0) / pages.length;
        const isIn = places => places.some(n => n > 0);
        const rarity = each.map((_, k) => Math.log(1 + pages.length / (1 + pages.filter(page => isIn(page.places[k])).length)));
        const found = [];
        for (const page of pages) {
            if (!page.places.some(isIn)) continue;
            const saturated = n => n / (n + 0.5 + page.length / usual);
            let score = 0;
            page.places.forEach(([title, also, headings, text], k) => {
                score += rarity[k] * (Search.ofTitle * (title > 0) + Search.ofAlias * (also > 0) +
                                      Search.ofHeading * saturated(headings) + Search.ofText * saturated(text));
            });
            const whole = Search.ofTitle * (count(page.title, phrase) > 0) + Search.ofAlias * (count(page.also, phrase) > 0) +
                Search.ofHeading * page.sections.some(([, heading]) => count(heading, phrase) > 0) +
                Search.ofText * saturated(page.sections.reduce((sum, [, , text]) => sum + count(text, phrase), 0));
            if (terms.length > 1) score += whole * Math.max(...rarity);
            // A page that lacks a word comes after those that have all.
            const lacking = page.places.filter(places => !isIn(places)).length;
            score *= (Search.kinds[page.kind] ?? 1) * (1 - lacking / terms.length) ** 3;
            found.push({score, ...Search.place(page, phrase, each)});
        }
        const best = Math.max(0, ...found.map(page => page.score));
        return found.filter(page => page.score > best / 20).sort((a, b) => b.score - a.score);
    },

    // Where in a page to begin: at its top if its title tells, else in the section that has the words most.
    place({kind, file, title, sections, also}, phrase, each) {
        const count = (text, pattern) => (text.match(pattern) ?? []).length;
        const hasAll = text => each.every(term => text.match(term));
        const ratings = sections.map(([, heading, text]) =>
            8 * (count(heading, phrase) > 0) + 4 * (hasAll(heading) ? 1 : 0) + Math.min(3, count(text, phrase)) +
            2 * (hasAll(`${heading} ${text}`) ? 1 : 0) + 0.1 * each.filter(term => text.match(term)).length);
        const best = sections[ratings.indexOf(Math.max(...ratings))];
        const [anchor, heading] = hasAll(title) || hasAll(also) ? ["", ""] : best;
        return {kind, title, heading, text: Search.excerpt(best[2], phrase, each), address: file + (anchor ? `#${anchor}` : "")};
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
