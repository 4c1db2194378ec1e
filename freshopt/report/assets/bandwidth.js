// The slider over the bandwidths that were solved: it shows what was certified and interpolates nothing.

function slide(data) {
  const box = document.getElementById("bandwidth-slider");
  const input = document.getElementById("bandwidth-at");
  const points = document.querySelectorAll("#bandwidth [data-point]");
  const cells = box.querySelectorAll("[data-column]");

  function show(k) {
    cells.forEach((cell) => { cell.textContent = data.rows[k][cell.dataset.column]; });
    points.forEach((point) => point.classList.toggle("at", Number(point.dataset.point) === k));
    const fresh = data.rows[k][2];
    input.setAttribute("aria-valuetext", data.rows[k][0] + (fresh ? `, up to date ${fresh} of ${data.of}` : ""));
  }

  input.addEventListener("input", () => show(Number(input.value)));
  document.getElementById("bandwidth-reset").addEventListener("click", () => {
    input.value = data.here;
    show(data.here);
  });
  // Browsers may bring back where a slider was.
  input.value = data.here;
  show(data.here);
  box.hidden = false;
}

const solved = dataOf("bandwidth-data");
if (solved) slide(solved);
