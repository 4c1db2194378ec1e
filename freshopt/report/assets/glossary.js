// Words of the glossary are explained where they stand: the first time in each section, under the pointer,
// under a finger, and to those who go from one to the next by keys.

function explain(list) {
  const meanings = new Map();
  list.querySelectorAll("dt").forEach((word) => meanings.set(word.textContent, word.nextSibling.textContent));
  const any = new RegExp(`\\b(${[...meanings.keys()].join("|")})(?=e?s?\\b)`, "i");
  // A phone shows no heads of columns, and the glossary when it is asked for.
  const small = window.matchMedia("(max-width: 40rem)").matches;
  if (small) list.parentNode.open = false;
  const heads = small ? "" : ", thead th";
  const places = `p, figcaption, dt, figure > b${heads}`;
  document.querySelectorAll("body > header, main > section").forEach((part) => {
    const told = new Set();
    if (part.contains(list)) return;
    part.querySelectorAll(places).forEach((place) => {
      for (const node of [...place.childNodes]) {
        const found = node.nodeType === Node.TEXT_NODE && any.exec(node.data);
        const word = found && found[1].toLowerCase();
        if (!found || told.has(word)) continue;
        told.add(word);
        const rest = node.splitText(found.index);
        rest.splitText(found[1].length);
        const meaning = meanings.get(word);
        const made = element("abbr", { tabindex: "0", "aria-description": meaning }, found[1]);
        const show = () => tell(meaning, made.getBoundingClientRect());
        const hide = () => { tip.hidden = true; };
        for (const [kind, does] of [["pointerenter", show], ["focus", show], ["pointerleave", hide], ["blur", hide]]) {
          made.addEventListener(kind, does);
        }
        made.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
        rest.replaceWith(made);
      }
    });
  });
}

if (window.matchMedia("(max-width: 40rem)").matches) {
  document.querySelectorAll("details.many").forEach((table) => { table.open = false; });
}
const glossary = document.getElementById("glossary");
if (glossary) explain(glossary);
