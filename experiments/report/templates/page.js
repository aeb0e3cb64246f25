for (const table of document.querySelectorAll("table:has(thead)")) {
  table.querySelectorAll("th").forEach((head, column) => {
    const value = row => {
      const text = row.cells[column].innerText, found = text.match(/[-+]?[.\d][,\d]*[.]?\d*/);
      return found ? parseFloat(found[0].replaceAll(",", "")) : NaN;
    };
    const sort = () => {
      const rows = [...table.tBodies[0].rows], down = head.ariaSort !== "descending";
      const numbers = rows.every(row => row.cells[column].innerText === "-" || !isNaN(value(row)));
      const compared = (a, b) => numbers ? (isNaN(value(b)) ? -1 : isNaN(value(a)) ? 1 : value(b) - value(a))
        : a.cells[column].innerText.localeCompare(b.cells[column].innerText);
      rows.sort((a, b) => (down ? 1 : -1) * compared(a, b)).forEach(row => table.tBodies[0].append(row));
      table.querySelectorAll("th").forEach(each => each.ariaSort = null);
      head.ariaSort = down ? "descending" : "ascending";
    };
    head.tabIndex = 0;
    head.title = "sort";
    head.onclick = sort;
    head.onkeydown = event => event.key === "Enter" && sort();
  });
}
const tip = document.body.appendChild(document.createElement("div"));
tip.className = "tip";
tip.hidden = true;
for (const image of document.querySelectorAll("img[data-hover]")) {
  const { points, maps } = JSON.parse(image.dataset.hover);
  const under = (x, y, box) => {
    for (const { left, top, width, height, rows, cells, size } of maps) {
      const row = Math.floor((y - top) / height * rows.length), step = Math.floor((x - left) / width * cells[0].length);
      const count = cells[row]?.[step];
      if (count) return `${rows[row]}, step ${step}: ${count === "." ? "not tried yet" : `${parseInt(count, 36)} of ${size}`}`;
    }
    const far = ([left, top]) => Math.hypot((left - x) * box.width, (top - y) * box.height);
    const nearest = points.reduce((best, point) => far(point) < far(best) ? point : best, [9, 9, ""]);
    return far(nearest) < 20 ? nearest[2] : "";
  };
  image.onpointermove = event => {
    const box = image.getBoundingClientRect();
    tip.textContent = under((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height, box);
    tip.hidden = !tip.textContent;
    tip.style.left = `${Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${event.clientY + 16}px`;
  };
  image.onpointerleave = () => tip.hidden = true;
}
