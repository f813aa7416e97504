// Every tool as a point: near ones do similar things. Colours are skills, sizes are calls.
import { html, useEffect, useMemo, useRef, useState } from "../core/dom.js";
import { plural } from "../core/format.js";
import { useApi, useTitle } from "../core/hooks.js";
import { go, link } from "../core/router.js";
import { Empty, Loaded } from "../parts/states.js";
import { Text } from "../parts/text.js";
import { MapView } from "./map/view.js";
import { Selection } from "./map/selection.js";

const COLOURS = 9;

export default function MapPage() {
  useTitle("Map");
  const map = useApi("/api/v1/map");
  const skills = useApi("/api/v1/skills");
  const calls = useApi("/api/v1/calls/summary?by=tool");  // without the scope, all points have one size
  return html`<div class="page-head"><h1>Map</h1>${map.data && html`<p>${plural(map.data.tools.length, "tool")}, ${plural(map.data.duplicates.length, "pair")} nearly the same</p>`}</div>
    <${Loaded} from=${map} rows=${10}>${(data) => data.tools.length === 0 ? html`<${Empty} title="There is nothing to draw">Tools need vectors: is there an embedding model?</${Empty}>`
      : html`<${ToolMap} map=${data} skills=${skills.data?.skills ?? []} calls=${calls.data?.rows ?? []} />`}</${Loaded}>`;
}

/** The most frequent skills get a colour of their own, the others share one. */
function colourSkills(tools, skills) {
  const counts = new Map();
  for (const tool of tools) if (tool.skill_id) counts.set(tool.skill_id, (counts.get(tool.skill_id) ?? 0) + 1);
  const names = new Map(skills.map((skill) => [skill.id, skill.name]));
  return [...counts].sort((a, b) => b[1] - a[1]).slice(0, COLOURS).map(([id, count], i) => ({ id, count, name: names.get(id) ?? id, colour: i + 1 }));
}

function ToolMap({ map, skills, calls }) {
  const [words, setWords] = useState("");
  const [hovered, setHovered] = useState(null);
  const [selected, setSelected] = useState([]);
  const canvas = useRef(null);
  const view = useRef(null);
  const legend = useMemo(() => colourSkills(map.tools, skills), [map, skills]);
  useEffect(() => {
    const made = new MapView(canvas.current, { onHover: setHovered, onOpen: (tool) => go(link("tool", tool.id)), onSelect: setSelected });
    view.current = made;
    return () => made.close();
  }, []);
  useEffect(() => {
    const colours = new Map(legend.map((each) => [each.id, each.colour]));
    const uses = new Map(calls.map((row) => [row.name, row.calls]));
    view.current.show(map.tools.map((tool) => ({ ...tool, colour: colours.get(tool.skill_id) ?? 0, calls: uses.get(tool.id) ?? 0 })), map.duplicates);
  }, [map, legend, calls]);
  useEffect(() => {
    const lowered = words.trim().toLowerCase();
    view.current.mark(lowered ? (tool) => tool.id.toLowerCase().includes(lowered) : null);
  }, [words, map]);
  return html`
    <div class="filters"><label class="field grow"><span class="unseen">Words of names</span><input type="text" placeholder="Show tools with these words in their names" value=${words} onInput=${(event) => setWords(event.target.value)} /></label>
      <button type="button" class="button" onClick=${() => view.current.chooseShown()} title="Chooses the tools that the map shows now and whose names have the words">Choose what is shown</button>
      <button type="button" class="button" onClick=${() => view.current.reset()}>Show all</button></div>
    <div class="card map"><canvas ref=${canvas} tabindex="0" role="img" aria-label=${`A map of ${plural(map.tools.length, "tool")}. The page Tools lists them as text. Arrows move it, plus and minus zoom, c chooses what is shown, Escape lets go.`}></canvas>
      <p class="map-hint">${hovered ? html`<strong class="mono"><${Text} value=${hovered.id} max=${90} /></strong> ${plural(hovered.calls, "call")}` : "Wheel or + −: zoom. Drag or arrows: move. Shift and drag, or c: choose tools. Click: open."}</p></div>
    <p class="legend map-legend">${legend.map((each) => html`<span key=${each.id}><i class=${`skill-${each.colour}`}></i><${Text} value=${each.name} max=${40} /> ${each.count}</span>`)}<span><i class="skill-0"></i>other</span></p>
    ${selected.length > 0 && html`<${Selection} key=${selected.map((tool) => tool.id).join()} tools=${selected} onClose=${() => view.current.choose([])} />`}`;
}
