// The table of all sources: searched, filtered, sorted, and shown a leaf at a time.

function browse(data) {
  const at = (id) => document.getElementById(`sources-${id}`);
  const body = at("table").querySelector("tbody");
  const caption = at("table").querySelector("caption");
  const heads = [...at("table").querySelectorAll("thead th")];
  const n = data.columns[0].length;
  const texts = ["name", "label"];
  const columns = data.columns.map((column) =>
    column.words ? column.at.map((place) => column.words[place]) : column);
  // What a search looks at: names, hosts and other words, in small letters.
  const searched = Array.from({ length: n }, (_, k) =>
    data.fields.map((field, j) => (texts.includes(field[1]) ? columns[j][k] : "")).join("\n").toLowerCase());
  // Which column orders the rows, and whether the largest come first; the page has the most costly first.
  let sorted = -1, falling = true, leaf = 0, rows = [];
  // A phone has room for fewer.
  const size = window.matchMedia("(max-width: 40rem)").matches ? data.few : data.leaf;

  const tests = {
    all: () => true,
    above: (value, bound) => value !== null && value > bound,
    below: (value, bound) => value !== null && value < bound,
    none: (value) => value === null,
    is: (value, word) => value === word,
  };

  function cell(kind, value) {
    if (kind === "every") return value === null ? "never" : duration(value * data.seconds);
    if (value === null) return "";
    if (kind === "share") return percent(value);
    if (kind === "change") return `${value >= 1 ? "+" : "−"}${percent(Math.abs(value - 1))}`;
    if (kind === "when") return moment(value);
    return kind === "number" ? number(value) : value;
  }

  function moment(value) {
    if (data.begin === null) return value > 0 ? `in ${duration(value * data.seconds)}` : "at once";
    const at = new Date(1000 * Math.floor(data.begin + value * data.seconds));
    return isNaN(at) ? "" : at.toISOString().slice(0, 16).replace("T", " ");
  }

  // A name is a link where it is the address of a page; what stands in a log may come from strangers.
  function named(text) {
    const made = element("bdi", {}, text);
    if (!/^https?:\/\/[^\s\u0000-\u001f\u007f…]+$/.test(text)) return made;
    return element("a", { href: text, target: "_blank", rel: "noopener noreferrer nofollow" }, made);
  }

  // A source that is never refreshed has the longest time between refreshes; other gaps come last.
  function order() {
    if (sorted < 0) return;
    const column = columns[sorted], kind = data.fields[sorted][1];
    const words = new Intl.Collator("en", { numeric: true });
    const sign = falling ? -1 : 1;
    const never = kind === "every" ? Infinity : null;
    rows.sort((a, b) => {
      const one = column[a] ?? never, other = column[b] ?? never;
      if (one === other) return a - b;
      if (one === null || other === null) return one === null ? 1 : -1;
      return sign * (texts.includes(kind) ? words.compare(one, other) : one - other) || a - b;
    });
  }

  function choose() {
    const wanted = at("search").value.trim().toLowerCase();
    const [, field, test, bound] = data.filters[Number(at("show").value)];
    rows = [];
    for (let k = 0; k < n; k += 1) {
      if (tests[test](columns[field][k], bound) && searched[k].includes(wanted)) rows.push(k);
    }
    order();
    leaf = 0;
    show();
  }

  function show() {
    const leaves = Math.max(1, Math.ceil(rows.length / size));
    const shown = rows.slice(leaf * size, (leaf + 1) * size);
    body.replaceChildren(...shown.map((k) => element("tr", {}, ...data.fields.map(([head, kind], j) => {
      const text = cell(kind, columns[j][k]);
      if (j === 0) return element("th", { scope: "row" }, named(text));
      const made = element("td", { "data-head": head }, text);
      if (!texts.includes(kind)) made.className = "number";
      return made;
    }))));
    caption.textContent = rows.length === n ? "Sources" : "Sources found";
    const first = leaf * size + 1;
    const range = rows.length ? `${first.toLocaleString("en-US")} to ` +
      `${(first + shown.length - 1).toLocaleString("en-US")} of ` : "";
    at("status").textContent = range + count(rows.length, "source") +
      (rows.length < n ? ` found among ${n.toLocaleString("en-US")}` : "");
    at("leaf").hidden = leaves < 2;
    back.disabled = leaf === 0;
    on.disabled = leaf === leaves - 1;
  }

  function sortBy(k, down) {
    [sorted, falling] = [k, down];
    heads.forEach((head, j) => {
      if (j === k) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    at("sort").value = k;
    at("turn").textContent = down ? "descending" : "ascending";
    at("turn").setAttribute("aria-pressed", down);
    order();
    leaf = 0;
    show();
  }

  function turn(by) {
    leaf += by;
    show();
  }

  // The rows that were found, in their order, as a table of other programs: numbers with all their digits. A
  // spreadsheet takes a text that begins like a formula for one, unless a sign stands before it.
  function csv() {
    const text = (value) => (/^[\s]*[=+\-@\t\r\n＝＋－＠]/.test(value) ? `'${value}` : value);
    const quoted = (value) => (/[",;\t\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
    const cells = (k) => data.fields.map(([, kind], j) => {
      const value = columns[j][k];
      if (value === null) return "";
      if (kind === "when") return moment(value);
      return texts.includes(kind) ? text(value) : String(value);
    });
    const units = { every: `, ${data.unit}s`, change: ", ratio", share: ", share" };
    const heads = data.fields.map(([head, kind]) => head + (units[kind] || ""));
    return [heads, ...rows.map(cells)].map((row) => row.map(quoted).join(",")).join("\r\n") + "\r\n";
  }

  function save() {
    // A byte order mark, without which spreadsheets take the text for another encoding.
    const file = URL.createObjectURL(new Blob(["\ufeff", csv()], { type: "text/csv" }));
    element("a", { href: file, download: "sources.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(file), 60000);
  }

  const back = element("button", { type: "button" }, "previous");
  const on = element("button", { type: "button" }, "next");
  back.addEventListener("click", () => turn(-1));
  on.addEventListener("click", () => turn(1));
  at("leaf").append(back, on);
  heads.forEach((head, k) => {
    // Numbers are looked at from the largest down, names from A to Z.
    const first = !texts.includes(data.fields[k][1]);
    const button = element("button", { type: "button" }, ...head.childNodes);
    button.addEventListener("click", () => sortBy(k, sorted === k ? !falling : first));
    head.append(button);
  });
  at("search").addEventListener("input", choose);
  at("show").addEventListener("change", choose);
  at("sort").addEventListener("change", () => sortBy(Number(at("sort").value), falling));
  at("turn").addEventListener("click", () => sortBy(Number(at("sort").value), !falling));
  at("save").addEventListener("click", save);
  const cost = data.fields.findIndex((field) => field[0].startsWith("cost"));
  if (cost >= 0) {
    sorted = cost;
    at("sort").value = cost;
    heads[cost].setAttribute("aria-sort", "descending");
  }
  at("controls").hidden = false;
  choose();
}

const listed = dataOf("sources-data");
if (listed) browse(listed);
