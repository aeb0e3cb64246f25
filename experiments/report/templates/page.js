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

const NIGHT = { "000000": "#e4e7eb", "1f2933": "#e4e7eb", "66717e": "#9aa5b1", e4e7eb: "#323f4b" };
const stored = document.getElementById("data");
if (stored) explore(JSON.parse(stored.textContent));
function explore({ arms, first, measures, spent, charts }) {
  const key = "halfway " + location.pathname;
  const kept = (() => { try { return JSON.parse(sessionStorage.getItem(key)) ?? {}; } catch { return {}; } })();
  const shown = new Set((kept.shown ?? first).filter(arm => arm in arms));
  let measure = kept.measure in measures ? kept.measure : Object.keys(measures)[0];
  const places = [...document.querySelectorAll("[data-chart]")], stale = new Set(places), near = new Set();
  const dark = matchMedia("(prefers-color-scheme: dark)");

  const at = (row, step) => row[measure] ?? spent[row.arm]?.[measure][step] ?? step;
  function prepared(name, width) {
    const { data: { columns, rows }, ...chart } = charts[name];
    const values = rows.map(cells => Object.fromEntries(columns.map((column, i) => [column, cells[i]])))
      .filter(row => row.arm === undefined || shown.has(row.arm));
    for (const row of values) {
      if ("x" in row) row.x = at(row, row.step);
      if ("x2" in row) row.x2 = at(row, row.end);
    }
    let text = JSON.stringify(chart, (_, value) => value?.field === "x" && value.title ? { ...value, title: measures[measure] } : value);
    if (dark.matches) text = text.replace(/"#(000000|1f2933|66717e|e4e7eb)"/g, (_, color) => `"${NIGHT[color]}"`);
    const spec = JSON.parse(text), panels = new Set(values.map(row => row.panel)).size;
    spec.columns = Math.max(1, Math.min(spec.columns, panels, Math.floor(width / 250)));
    spec.spec.width = Math.max(120, Math.floor(width / spec.columns) - 60);
    const moving = spec.spec.layer.find(layer => layer.encoding.x?.field === "x");
    if (moving) {
      const encodings = moving.encoding.y.type === "quantitative" ? ["x", "y"] : ["x"];
      moving.params = [{ name: "zoom", select: { type: "interval", encodings, zoom: "wheel![event.shiftKey]" }, bind: "scales" }];
    }
    spec.config.legend.columns = Math.max(1, Math.floor(width / 140));
    spec.background = "transparent";
    for (const layer of spec.spec.layer) {
      for (const channel of ["color", "stroke", "fill"]) {
        if (layer.encoding[channel]?.field === "arm") layer.encoding[channel].legend = null;
      }
    }
    if (spec.facet.sort.length === 1 && !spec.facet.sort[0]) spec.facet.header = null;
    return { ...spec, data: { values } };
  }
  async function draw(place) {
    if (!near.has(place) || !stale.delete(place)) return;
    const width = place.clientWidth, spec = prepared(place.dataset.chart, width);
    const options = { ast: true, renderer: "canvas", actions: { export: true, source: false, compiled: false, editor: false } };
    const show = () => vegaEmbed(place, structuredClone(spec), options);
    let { view } = await show();
    const beyond = view.container().querySelector("canvas").clientWidth - width;
    if (Math.abs(beyond) > 3) {  // names and legends take what they need
      spec.spec.width = Math.max(120, spec.spec.width - Math.ceil(beyond / spec.columns));
      ({ view } = await show());
    }
    place.dataset.drawn = `${[...shown].length} ${measure}`;
    view.addEventListener("click", (event, item) => item?.datum?.part && place.dataset.chart === "rollout_fates"
      && list(item.datum.arm, item.datum.part));
  }
  const watcher = new IntersectionObserver(seen => {
    for (const { target, isIntersecting } of seen) {
      isIntersecting ? near.add(target) : near.delete(target);
      draw(target);
    }
  }, { rootMargin: "300px" });
  places.forEach(place => watcher.observe(place));
  function redraw() {
    places.forEach(place => stale.add(place));
    places.forEach(draw);
    try { sessionStorage.setItem(key, JSON.stringify({ shown: [...shown], measure })); } catch { /* a page of a strict browser */ }
  }
  dark.onchange = redraw;
  let wide = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== wide) { wide = innerWidth; redraw(); } });

  const made = (parent, tag, fields = {}) => parent.appendChild(Object.assign(document.createElement(tag), fields));
  const controls = document.querySelector(".controls"), buttons = {};
  const press = () => { for (const arm in buttons) buttons[arm].ariaPressed = String(shown.has(arm)); redraw(); };
  for (const [arm, color] of Object.entries(arms)) {
    const toggle = () => { shown.delete(arm) || shown.add(arm); press(); };
    const alone = () => { shown.clear(); shown.add(arm); press(); };
    buttons[arm] = made(controls, "button", { textContent: arm, onclick: toggle, ondblclick: alone, ariaPressed: String(shown.has(arm)),
      title: "switch on or off; double click: this one alone" });
    buttons[arm].style.setProperty("--arm", dark.matches && color === "#000000" ? "#e4e7eb" : color);
  }
  if (Object.keys(arms).length > 2) made(controls, "button", { textContent: "all", onclick: () => { Object.keys(arms).forEach(arm => shown.add(arm)); press(); } });
  const axis = made(made(controls, "label", { textContent: "x axis " }), "select");
  for (const [name, label] of Object.entries(measures)) made(axis, "option", { value: name, textContent: label, selected: name === measure });
  axis.onchange = () => { measure = axis.value; redraw(); };

  const filter = document.querySelector(".filter"), rows = [...document.querySelectorAll(".problems tbody tr")];
  if (!filter) return;
  const field = (text, fields) => made(made(filter, "label", { textContent: text }), "input", { oninput: sift, ...fields });
  const word = field("prompt ", { type: "search" }), low = field("passed from ", { type: "number", min: 0 }), high = field("to ", { type: "number", min: 0 });
  const fate = made(made(filter, "label", { textContent: "a visit that was " }), "select", { onchange: sift });
  const fates = new Set(rows.flatMap(row => Object.values(JSON.parse(row.dataset.fates)).flat()));
  for (const one of ["", ...fates]) made(fate, "option", { value: one, textContent: one || "anything" });
  const count = made(filter, "output");
  let ofArm = "";
  function sift() {
    let left = 0;
    for (const row of rows) {
      const each = JSON.parse(row.dataset.fates), counts = [...row.cells].slice(4).flatMap(cell => cell.textContent.split(" ")).filter(Boolean).map(Number);
      const said = ofArm && each[ofArm] ? each[ofArm] : ofArm ? [] : Object.values(each).flat();
      row.hidden = !row.cells[0].textContent.toLowerCase().includes(word.value.toLowerCase()) || (fate.value && !said.includes(fate.value))
        || !counts.some(k => k >= (low.value || 0) && k <= (high.value || Infinity));
      left += !row.hidden;
    }
    count.textContent = `${left} of ${rows.length} problems${ofArm && fate.value ? `, ${ofArm}` : ""}`;
    ofArm = "";
  }
  function list(arm, part) {
    if (!fates.has(part)) return;
    [fate.value, ofArm] = [part, arm];
    sift();
    document.getElementById("problems").scrollIntoView();
  }
  sift();
  document.querySelector(".problems").onclick = event => {
    const opened = event.target.hash && document.querySelector(event.target.hash);
    if (opened) opened.open = true;
  };
}
