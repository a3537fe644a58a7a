"use strict";
// Draws the charts in the colours of the page, and again when the reader switches between light and dark.
(async () => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const plots = [...document.querySelectorAll(".plot")];
  const options = {
    responsive: true,
    displaylogo: false,
    displayModeBar: matchMedia("(hover: hover)").matches ? "hover" : false,
    modeBarButtons: [["toImage", "resetScale2d"]],
  };

  function ink() {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const axis = { gridcolor: color("--line"), linecolor: color("--line"), tickcolor: color("--line") };
    const update = { "font.color": color("--ink"), "font.family": getComputedStyle(document.body).fontFamily };
    for (const letter of ["x", "y"]) {
      for (const [key, value] of Object.entries(axis)) update[`${letter}axis.${key}`] = value;
    }
    update["hoverlabel.bgcolor"] = color("--card");
    update["hoverlabel.bordercolor"] = color("--line");
    update["hoverlabel.font.color"] = color("--ink");
    update["modebar.color"] = color("--muted");
    update["modebar.bgcolor"] = "rgba(0,0,0,0)";
    return update;
  }

  // The library is packed: it would be most of the file.
  async function unpackPlotly() {
    const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), (c) => c.charCodeAt(0));
    const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(unpacked).text();
    document.head.append(script); // runs at once
    script.remove();
  }

  async function draw(plot) {
    plot.dataset.drawn = "yes";
    const { data, layout } = figures[Number(plot.dataset.figure)];
    await Plotly.newPlot(plot, data, layout, options);
    await Plotly.relayout(plot, ink());
  }

  // A chart in a closed fold is drawn when the fold opens, or for printing.
  async function drawVisible() {
    for (const plot of plots) {
      if (plot.dataset.drawn || plot.closest("details:not([open])")) continue;
      await draw(plot);
      await new Promise((resolve) => setTimeout(resolve)); // the reader may scroll meanwhile
    }
    document.documentElement.dataset.charts = String(plots.filter((plot) => plot.dataset.drawn).length);
  }

  if (!window.DecompressionStream) {
    document.getElementById("too-old").hidden = false;
    return;
  }
  await unpackPlotly();
  for (const fold of document.querySelectorAll("details")) fold.addEventListener("toggle", drawVisible);
  addEventListener("beforeprint", () => {
    for (const fold of document.querySelectorAll("details")) fold.open = true;
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const plot of plots) if (plot.dataset.drawn) Plotly.relayout(plot, ink());
  });
  drawVisible();
})();
