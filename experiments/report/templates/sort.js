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
