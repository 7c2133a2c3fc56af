for (const head of document.querySelectorAll("th[data-sort]")) {
  head.addEventListener("click", () => {
    const body = head.closest("table").tBodies[0], column = head.cellIndex;
    const down = head.dataset.sort !== "down";
    head.dataset.sort = down ? "down" : "up";
    const value = row => {
      const text = row.cells[column].dataset.value ?? row.cells[column].textContent;
      return text !== "" && !isNaN(text) ? Number(text) : text;
    };
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
      return down ? order : -order;
    });
    body.append(...rows);
  });
}
