// The pictures of `trimaran look`: attention by layer and head, and the similarity of token vectors.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const bytes = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  const percent = share => share < 0.0995 ? `${(100 * share).toFixed(1)} %` : `${Math.round(100 * share)} %`;
  const colourOf = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const headColour = head => `var(--s${head % 8 + 1})`;
  const make = (tag, properties = {}, ...content) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...content);
    return element;
  };
  const choice = (words, options, chosen, changed) => {
    const select = make("select", {}, ...options.map((option, index) => make("option", { value: index }, option)));
    select.value = chosen;
    select.addEventListener("change", () => changed(Number(select.value)));
    return [make("label", {}, words, select), select];
  };
  const textNames = data.readings.map((_, index) => `text ${"AB"[index]}`);
  const quoted = token => `“${token}”`;

  function rgb(name) {
    const brush = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    brush.fillStyle = colourOf(name);
    brush.fillRect(0, 0, 1, 1);
    return brush.getImageData(0, 0, 1, 1).data;
  }

  // Squares of one colour, the stronger the larger the share.
  function paint(canvas, width, height, share, colour) {
    Object.assign(canvas, { width, height });
    const brush = canvas.getContext("2d"), image = brush.createImageData(width, height);
    for (let row = 0; row < height; row++) {
      for (let column = 0; column < width; column++) {
        image.data.set([colour[0], colour[1], colour[2], 255 * share(row, column)], 4 * (row * width + column));
      }
    }
    brush.putImageData(image, 0, 0);
  }

  function attentionView() {
    const home = document.getElementById("attention-view");
    if (!home) return;
    const words = document.getElementById("attention-words");
    const controls = document.getElementById("attention-controls"), overview = document.getElementById("overview");
    const known = data.readings.map((reading, index) => ({ ...reading, index })).filter(reading => reading.attention);
    const state = { reading: known[0], layer: known[0].layers - 1, heads: new Set(), shown: null, kept: null };
    for (const reading of known) reading.bytes = bytes(reading.attention);
    const size = () => state.reading.tokens.length;
    const weight = (head, from, to, layer = state.layer) =>
      state.reading.bytes[((layer * state.reading.heads + head) * size() + from) * size() + to] / 255;
    const mean = (from, to) => {
      let sum = 0;
      for (const head of state.heads) sum += weight(head, from, to);
      return state.heads.size ? sum / state.heads.size : 0;
    };
    const everyHead = () => new Set(Array.from({ length: state.reading.heads }, (_, head) => head));
    state.heads = everyHead();

    const [layerLabel, layerSelect] = choice(
      "layer", Array.from({ length: state.reading.layers }, (_, layer) => `layer ${layer + 1}`), state.layer,
      layer => { state.layer = layer; update(); });
    const heads = make("fieldset", { className: "heads" }, make("legend", {}, "heads"));
    const all = make("button", { type: "button" }, "all");
    all.addEventListener("click", () => { state.heads = everyHead(); update(); });
    heads.append(all);
    const headButtons = [...everyHead()].map(head => {
      const button = make("button", { type: "button", ariaLabel: `head ${head + 1}` }, String(head + 1));
      button.style.setProperty("--head", headColour(head));
      button.addEventListener("click", () => {
        // From all heads, the first press picks one; after that, each press adds or takes away.
        if (state.heads.size === state.reading.heads) state.heads = new Set([head]);
        else if (!state.heads.delete(head)) state.heads.add(head);
        if (!state.heads.size) state.heads = everyHead();
        update();
      });
      heads.append(button);
      return button;
    });
    if (known.length > 1) {
      controls.append(choice("text", known.map(reading => textNames[reading.index]), 0, index => {
        Object.assign(state, { reading: known[index], shown: null, kept: null });
        lay();
        update();
        drawOverview();
      })[0]);
    }
    controls.append(layerLabel, heads);

    const from = make("ol", { className: "from" }), to = make("ol", { className: "to" });
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("aria-hidden", "true");
    svg.setAttribute("preserveAspectRatio", "none");
    home.append(from, svg, to);
    let fromButtons = [], toButtons = [];

    function lay() {
      const column = (list, action) => {
        const buttons = state.reading.tokens.map((token, index) => {
          const button = make("button", { type: "button", title: token }, token);
          action?.(button, index);
          return button;
        });
        list.replaceChildren(...buttons.map(button => make("li", {}, button)));
        return buttons;
      };
      const side = which => (button, index) => {
        const show = () => { state.shown = { which, index }; draw(); };
        const leave = () => { state.shown = state.kept; draw(); };
        button.addEventListener("mouseenter", show);
        button.addEventListener("mouseleave", leave);
        button.addEventListener("focus", show);
        button.addEventListener("blur", leave);
        button.addEventListener("click", () => {
          const again = state.kept?.which === which && state.kept.index === index;
          state.kept = again ? null : { which, index };
          state.shown = { which, index };
          draw();
        });
      };
      fromButtons = column(from, side("from"));
      toButtons = column(to, side("to"));
      svg.setAttribute("viewBox", `0 0 100 ${24 * size()}`);
      svg.style.height = `${24 * size()}px`;
    }

    // Lines of one head and about one weight are one path, so that long texts stay quick.
    function draw() {
      const paths = new Map(), steps = 6;
      const shown = state.shown;
      const most = shown ? 1 : 0.75;
      for (const head of state.heads) {
        for (let row = 0; row < size(); row++) {
          if (shown?.which === "from" && shown.index !== row) continue;
          for (let column = 0; column < size(); column++) {
            if (shown?.which === "to" && shown.index !== column) continue;
            const share = weight(head, row, column);
            const step = Math.ceil(steps * Math.sqrt(share));
            if (share < 0.02) continue;
            const key = `${head} ${step}`;
            paths.set(key, `${paths.get(key) ?? ""}M0 ${24 * row + 12}C40 ${24 * row + 12} 60 ${24 * column + 12} 100 ${24 * column + 12}`);
          }
        }
      }
      svg.replaceChildren(...[...paths].map(([key, d]) => {
        const [head, step] = key.split(" ").map(Number);
        const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
        const alone = state.heads.size === 1 ? 1 : 0.75;
        const attributes = {
          d, stroke: headColour(head), "stroke-width": 0.5 + 3.5 * (step / steps) ** 2,
          "stroke-opacity": (most * alone * step / steps).toFixed(2), "vector-effect": "non-scaling-stroke",
        };
        for (const [name, value] of Object.entries(attributes)) path.setAttribute(name, value);
        return path;
      }));
      const pressed = which => (button, index) =>
        button.setAttribute("aria-pressed", String(shown?.which === which && shown.index === index));
      fromButtons.forEach(pressed("from"));
      toButtons.forEach(pressed("to"));
      toButtons.forEach((button, index) => {
        const share = shown?.which === "from" ? mean(shown.index, index) : 0;
        button.style.setProperty("--part", `${Math.min(45, 90 * share)}%`);
      });
      words.textContent = sentence();
    }

    function sentence() {
      const tokens = state.reading.tokens, shown = state.shown;
      const which = state.heads.size === 1 ? `head ${[...state.heads][0] + 1}` : `the mean of ${state.heads.size} heads`;
      if (!shown) return `Layer ${state.layer + 1}, ${which}.`;
      const share = other => shown.which === "from" ? mean(shown.index, other) : mean(other, shown.index);
      const best = tokens.map((_, other) => other).sort((a, b) => share(b) - share(a)).slice(0, 5);
      const listed = best.map(other => `${quoted(tokens[other])} ${percent(share(other))}`).join(", ");
      const verb = shown.which === "from" ? "attends to" : "is attended to by";
      return `Layer ${state.layer + 1}, ${which}: ${quoted(tokens[shown.index])} ${verb} ${listed}.`;
    }

    let squares = [];
    function layOverview() {
      const { layers, heads: count } = state.reading;
      overview.style.gridTemplateColumns = `max-content repeat(${count}, max-content)`;
      const cells = [make("span", {}, "")];
      for (let head = 0; head < count; head++) cells.push(make("span", {}, `head ${head + 1}`));
      squares = [];
      for (let layer = 0; layer < layers; layer++) {
        cells.push(make("span", {}, `layer ${layer + 1}`));
        for (let head = 0; head < count; head++) {
          const button = make("button", { type: "button", ariaLabel: `layer ${layer + 1}, head ${head + 1}` }, make("canvas"));
          button.addEventListener("click", () => {
            Object.assign(state, { layer, heads: new Set([head]) });
            layerSelect.value = layer;
            update();
          });
          button.addEventListener("keydown", event => {
            const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -count, ArrowDown: count }[event.key];
            const next = step && squares[squares.indexOf(button) + step];
            if (!next) return;
            event.preventDefault();
            squares.forEach(square => { square.tabIndex = -1; });
            next.tabIndex = 0;
            next.focus();
          });
          button.tabIndex = squares.length ? -1 : 0;
          squares.push(button);
          cells.push(button);
        }
      }
      overview.replaceChildren(...cells);
    }
    function drawOverview() {
      const colour = rgb("--accent");
      squares.forEach((square, index) => {
        const layer = Math.floor(index / state.reading.heads), head = index % state.reading.heads;
        // The root shows weak attention as well.
        paint(square.firstChild, size(), size(), (row, column) => Math.sqrt(weight(head, row, column, layer)), colour);
      });
    }
    function update() {
      headButtons.forEach((button, head) => button.setAttribute("aria-pressed", String(state.heads.has(head))));
      all.setAttribute("aria-pressed", String(state.heads.size === state.reading.heads));
      squares.forEach((square, index) => {
        const layer = Math.floor(index / state.reading.heads), head = index % state.reading.heads;
        square.setAttribute("aria-pressed", String(layer === state.layer && state.heads.size === 1 && state.heads.has(head)));
      });
      draw();
    }
    lay();
    layOverview();
    update();
    drawOverview();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawOverview);
  }

  function similarityView() {
    const home = document.getElementById("similarity-view"), words = document.getElementById("similarity-words");
    const controls = document.getElementById("similarity-controls");
    const starts = [], every = [];
    for (const reading of data.readings) {
      starts.push(every.length);
      every.push(...reading.tokens);
    }
    const matrices = data.similarity.map(bytes);
    const state = { rows: 0, columns: data.readings.length - 1, layer: matrices.length - 1, kept: null };
    const tokensOf = which => data.readings[state[which]].tokens;
    const cosine = (row, column) =>
      2 * matrices[state.layer][(starts[state.rows] + row) * every.length + starts[state.columns] + column] / 255 - 1;
    const canvas = make("canvas");
    let buttons = [];

    if (data.readings.length > 1) {
      for (const which of ["rows", "columns"]) {
        controls.append(choice(which, textNames, state[which], index => { state[which] = index; state.kept = null; lay(); })[0]);
      }
    }
    controls.append(choice("after", data.states, state.layer, layer => { state.layer = layer; draw(); })[0]);

    function say(row, column) {
      const [rows, columns] = [tokensOf("rows"), tokensOf("columns")];
      if (row === null || row === undefined) {
        words.textContent = "Point at a square for its cosine, or at a token on the left for the tokens most like it.";
      } else if (column !== undefined) {
        words.textContent = `${quoted(rows[row])} and ${quoted(columns[column])}: cosine ${cosine(row, column).toFixed(2)}.`;
      } else {
        const same = state.rows === state.columns;
        const best = columns.map((_, index) => index).filter(index => !same || index !== row)
          .sort((a, b) => cosine(row, b) - cosine(row, a)).slice(0, 5);
        const listed = best.map(index => `${quoted(columns[index])} ${cosine(row, index).toFixed(2)}`).join(", ");
        words.textContent = `Most like ${quoted(rows[row])}: ${listed || "no other token"}.`;
      }
      buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(index === row)));
    }
    function lay() {
      buttons = tokensOf("rows").map((token, row) => {
        const button = make("button", { type: "button", title: token }, token);
        button.addEventListener("mouseenter", () => say(row));
        button.addEventListener("focus", () => say(row));
        button.addEventListener("mouseleave", () => say(state.kept));
        button.addEventListener("click", () => { state.kept = state.kept === row ? null : row; say(row); });
        return button;
      });
      home.replaceChildren(
        make("ol", { className: "columns", ariaHidden: "true" }, ...tokensOf("columns").map(token => make("li", {}, token))),
        make("ol", {}, ...buttons.map(button => make("li", {}, button))),
        canvas,
      );
      draw();
    }
    function draw() {
      const rows = tokensOf("rows").length, columns = tokensOf("columns").length;
      const [alike, unlike] = [rgb("--accent"), rgb("--warn")];
      paint(canvas, columns, rows, (row, column) => Math.max(0, cosine(row, column)) ** 1.5, alike);
      const brush = canvas.getContext("2d");
      for (let row = 0; row < rows; row++) {
        for (let column = 0; column < columns; column++) {
          if (cosine(row, column) < -0.02) {
            brush.fillStyle = `rgba(${unlike[0]}, ${unlike[1]}, ${unlike[2]}, ${-cosine(row, column)})`;
            brush.fillRect(column, row, 1, 1);
          }
        }
      }
      Object.assign(canvas.style, { width: `${20 * columns}px`, height: `${20 * rows}px` });
      say(state.kept);
    }
    canvas.addEventListener("mousemove", event => {
      const [row, column] = [Math.floor(event.offsetY / 20), Math.floor(event.offsetX / 20)];
      if (row >= 0 && row < buttons.length && column >= 0 && column < tokensOf("columns").length) say(row, column);
    });
    canvas.addEventListener("mouseleave", () => say(state.kept));
    lay();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  }

  attentionView();
  similarityView();
})();
