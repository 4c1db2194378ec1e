// What a mark of a chart means, under the pointer, under a finger, and by keys.
//
// Every mark has a title. Browsers show it after a while, to a mouse alone; here the nearest mark is told at
// once. A chart takes the focus, and arrows go from mark to mark: it is a slider through its marks, so that a
// screen reader passes the keys on and says what each means.

// Pixels of the chart within which a mark is near enough.
const NEAR = 22;

const tip = element("div", { class: "tip", "aria-hidden": "true" });
tip.hidden = true;
document.body.append(tip);

// Shows a text above a box and within the window, below it where there is no room; of a tall one, at its side.
function tell(text, box) {
  tip.textContent = text;
  tip.hidden = false;
  const [wide, tall] = [tip.offsetWidth, tip.offsetHeight];
  const most = document.documentElement.clientWidth - wide - 4;
  let left = box.left + box.width / 2 - wide / 2;
  let top = box.top - tall - 8;
  if (box.height > 2 * tall + 40) {
    left = box.right + 10 > most ? box.left - wide - 10 : box.right + 10;
    top = Math.max(box.top + 6, 4);
  } else if (top < 4) top = Math.min(box.bottom + 8, window.innerHeight - tall - 4);
  tip.style.left = `${Math.max(Math.min(left, most), 4) + window.scrollX}px`;
  tip.style.top = `${top + window.scrollY}px`;
}

function follow(svg) {
  const titles = [...svg.querySelectorAll("title")];
  if (!titles.length) return;
  const marks = titles.map((title) => ({ shape: title.parentNode, text: title.textContent }));
  titles.forEach((title) => title.remove());
  let placed = false;
  let at = -1;

  // Where marks are is asked for when somebody comes near: a chart that is not shown has no places.
  function place() {
    if (placed) return;
    placed = true;
    for (const mark of marks) {
      const box = mark.shape.getBBox();
      Object.assign(mark, { left: box.x, top: box.y, right: box.x + box.width, bottom: box.y + box.height });
      mark.size = box.width * box.height;
    }
    marks.sort((a, b) => a.left + a.right - b.left - b.right || b.bottom - a.bottom);
  }

  function nearest(x, y) {
    let best = -1, least = NEAR * NEAR, size = Infinity;
    marks.forEach((mark, k) => {
      const across = Math.max(mark.left - x, 0, x - mark.right);
      const up = Math.max(mark.top - y, 0, y - mark.bottom);
      const far = across * across + up * up;
      if (far < least || (far === least && mark.size < size)) [best, least, size] = [k, far, mark.size];
    });
    return best;
  }

  function show(k) {
    if (at >= 0) marks[at].shape.classList.remove("on");
    at = k;
    tip.hidden = k < 0;
    if (k < 0) return;
    const mark = marks[k];
    mark.shape.classList.add("on");
    svg.setAttribute("aria-valuenow", k + 1);
    svg.setAttribute("aria-valuetext", mark.text);
    tell(mark.text, mark.shape.getBoundingClientRect());
  }

  function point(event) {
    place();
    const to = svg.getScreenCTM().inverse();
    const spot = new DOMPoint(event.clientX, event.clientY).matrixTransform(to);
    const k = nearest(spot.x, spot.y);
    if (k !== at) show(k);
  }

  const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 };
  function key(event) {
    const last = marks.length - 1;
    let k = at;
    if (event.key in steps) k = Math.min(Math.max(at + steps[event.key], 0), last);
    else if (event.key === "Home") k = 0;
    else if (event.key === "End") k = last;
    else if (event.key === "Escape") k = -1;
    else return;
    event.preventDefault();
    show(k);
  }

  svg.setAttribute("tabindex", "0");
  svg.setAttribute("role", "slider");
  svg.setAttribute("aria-roledescription", "chart");
  svg.setAttribute("aria-valuemin", "1");
  svg.setAttribute("aria-valuemax", marks.length);
  svg.setAttribute("aria-valuenow", "1");
  svg.setAttribute("aria-valuetext", `${marks.length} marks; arrow keys go through them`);
  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerdown", point);
  svg.addEventListener("pointerleave", () => svg !== document.activeElement && show(-1));
  svg.addEventListener("focus", () => { place(); if (at < 0 && svg.matches(":focus-visible")) show(0); });
  svg.addEventListener("blur", () => show(-1));
  svg.addEventListener("keydown", key);
}

document.querySelectorAll("svg.chart").forEach(follow);
