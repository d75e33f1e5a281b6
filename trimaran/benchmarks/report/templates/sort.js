// A click on a column's head sorts its table. Rows without a number stay last.
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells];
  const groups = () => table.tBodies.length > 1 ? [...table.tBodies] : [...table.tBodies[0].rows];
  const first = group => group.rows ? group.rows[0] : group;
  const home = table.tBodies.length > 1 ? table : table.tBodies[0];
  if (groups().length < 2) continue;
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const falls = head.ariaSort === "ascending" ? -1 : 1;
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", falls > 0 ? "ascending" : "descending");
      const value = group => {
        const text = first(group).cells[column].innerText.replace(/^[^\p{L}\p{N}−–-]+/u, "");
        const number = parseFloat(text.replace("−", "-").replaceAll(",", ""));
        const size = /^\d+x\d+/.exec(text);
        if (size) { const [batch, tokens] = size[0].split("x").map(Number); return batch * 1e6 + tokens; }
        return Number.isNaN(number) ? text : number;
      };
      const rank = found => typeof found === "number" ? 0 : found.startsWith("–") ? 2 : 1;
      groups().map(group => [value(group), group]).sort(([a], [b]) =>
        rank(a) - rank(b) || falls * (typeof a === "number" ? a - b : a.localeCompare(b))
      ).forEach(([, group]) => home.append(group));
    });
  });
}
