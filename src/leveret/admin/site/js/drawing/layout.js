// Where boxes and arrows of a drawing go: layers from left to right, few crossings, arrows that bend around boxes. Pure
// figures: nothing here touches the page, so the same input gives the same drawing.

const ROW_GAP = 14;
const SWEEPS = 6;
const DUMMY_HEIGHT = 6;
const PORT_GAP = 17; // arrows that end at one box stand so far apart, for their labels
const PORTS_MAX = 14;

/** nodes: [{id, width, height}]; edges: [{source, destination, label: width of its text}], by ids. Answers {nodes: Map id ->
 *  {x, y, width, height}, edges: [{points, labelAt}] in the order of the input, width, height}. Points go from the source to
 *  the destination; labelAt: {x, y, anchor}. */
export function layered(nodes, edges, { layerGap = 90 } = {}) {
  const vertices = new Map(nodes.map((node) => [node.id, { ...node, layer: 0, in: [], out: [], y: 0 }]));
  const links = edges.map((edge, index) => ({ edge, index, source: vertices.get(edge.source), destination: vertices.get(edge.destination) }));
  const straight = links.filter((link) => link.source !== link.destination);
  turn(vertices, straight);
  assign(vertices, straight);
  const layers = stack(vertices, straight);
  order(layers);
  ports(straight);
  place(layers, straight, layerGap);
  return drawn(nodes, vertices, links, layers);
}

// Arrows that would lead back are laid out the other way round, and drawn the right one.
function turn(vertices, links) {
  const outgoing = new Map([...vertices.keys()].map((id) => [id, []]));
  for (const link of links) outgoing.get(link.source.id).push(link);
  const states = new Map(); // 1: on the way, 2: done
  for (const start of vertices.keys()) {
    const todo = [[start, 0]];
    if (states.has(start)) continue;
    states.set(start, 1);
    while (todo.length) {
      const step = todo.at(-1), link = outgoing.get(step[0])[step[1]];
      step[1] += 1;
      if (link === undefined) {
        states.set(step[0], 2);
        todo.pop();
      } else if (states.get(link.destination.id) === 1) link.isTurned = true;
      else if (!states.has(link.destination.id)) {
        states.set(link.destination.id, 1);
        todo.push([link.destination.id, 0]);
      }
    }
  }
  for (const link of links) [link.from, link.to] = link.isTurned ? [link.destination, link.source] : [link.source, link.destination];
}

// The layer of a box is one more than that of everything that leads to it; what leads nowhere near stands close to where it leads.
function assign(vertices, links) {
  const waits = new Map([...vertices.values()].map((vertex) => [vertex, 0]));
  const next = new Map([...vertices.values()].map((vertex) => [vertex, []]));
  for (const { from, to } of links) {
    waits.set(to, waits.get(to) + 1);
    next.get(from).push(to);
  }
  const free = [...waits].filter(([, count]) => count === 0).map(([vertex]) => vertex), sorted = [];
  while (free.length) {
    const vertex = free.shift();
    sorted.push(vertex);
    for (const other of next.get(vertex)) {
      other.layer = Math.max(other.layer, vertex.layer + 1);
      waits.set(other, waits.get(other) - 1);
      if (waits.get(other) === 0) free.push(other);
    }
  }
  for (const vertex of sorted.reverse()) {
    const isSource = links.every(({ to }) => to !== vertex), following = next.get(vertex);
    if (isSource && following.length) vertex.layer = Math.min(...following.map((other) => other.layer)) - 1;
  }
}

// Layers with a point in between for each layer that an arrow passes.
function stack(vertices, links) {
  const layers = [];
  const put = (vertex) => { (layers[vertex.layer] ??= []).push(vertex); };
  for (const vertex of vertices.values()) put(vertex);
  for (const link of links) {
    link.way = [link.from];
    for (let layer = link.from.layer + 1; layer < link.to.layer; layer += 1) {
      const dummy = { layer, width: 0, height: DUMMY_HEIGHT, in: [], out: [], y: 0, isDummy: true };
      put(dummy);
      link.way.push(dummy);
    }
    link.way.push(link.to);
    for (let at = 1; at < link.way.length; at += 1) {
      link.way[at - 1].out.push(link.way[at]);
      link.way[at].in.push(link.way[at - 1]);
    }
  }
  return Array.from(layers, (layer) => layer ?? []);
}

// Barycentres, forth and back.
function order(layers) {
  for (const layer of layers) layer.forEach((vertex, at) => { vertex.at = at; });
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const side = sweep % 2 ? "out" : "in", walk = sweep % 2 ? [...layers].reverse() : layers;
    for (const layer of walk) {
      for (const vertex of layer) vertex.weight = vertex[side].length ? mean(vertex[side].map((other) => other.at)) : vertex.at;
      layer.sort((one, other) => one.weight - other.weight || one.at - other.at);
      layer.forEach((vertex, at) => { vertex.at = at; });
    }
  }
}

const mean = (values) => values.reduce((sum, each) => sum + each, 0) / values.length;

// Where arrows leave and arrive, and how high a box must be for that. A fan's labels stand where its arrows are apart.
function ports(links) {
  const into = group(links, (link) => link.to), from = group(links, (link) => link.from);
  for (const link of links) link.isLabelledAtStart = from.get(link.from).length === 1 && into.get(link.to).length > 1;
  for (const [vertex, some] of into) spread(vertex, some, "arrival", (link) => link.way.at(-2).at, (link) => !link.isLabelledAtStart);
  for (const [vertex, some] of from) spread(vertex, some, "departure", (link) => link.way[1].at, () => false);
}

function spread(vertex, links, name, rank, isLabelled) {
  links.sort((one, other) => rank(one) - rank(other));
  const labelled = links.filter(isLabelled).length;
  const gap = labelled > 1 ? PORT_GAP : name === "arrival" && links.length > 1 ? 5 : 0;
  const span = Math.min(links.length - 1, PORTS_MAX) * gap;
  vertex.height = Math.max(vertex.height, span + 16);
  links.forEach((link, at) => { link[name] = links.length > 1 ? (at / (links.length - 1) - 0.5) * span : 0; });
}

function group(items, key) {
  const found = new Map();
  for (const item of items) {
    if (!found.has(key(item))) found.set(key(item), []);
    found.get(key(item)).push(item);
  }
  return found;
}

function place(layers, links, layerGap) {
  const labels = layers.map(() => 0);
  for (const { way, edge } of links) {
    for (let at = 1; at < way.length; at += 1) labels[way[at].layer] = Math.max(labels[way[at].layer], edge.label ?? 0);
  }
  let x = 0;
  for (const [at, layer] of layers.entries()) {
    const width = Math.max(0, ...layer.map((vertex) => vertex.width));
    if (at > 0) x += layerGap + labels[at];
    for (const vertex of layer) vertex.x = x;
    for (const vertex of layer) Object.assign(vertex, { span: width, labels: labels[at] });
    x += width;
    let y = 0;
    for (const vertex of layer) {
      vertex.y = y + vertex.height / 2;
      y += vertex.height + (vertex.isDummy ? ROW_GAP / 2 : ROW_GAP);
    }
  }
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    for (const layer of sweep % 2 ? [...layers].reverse() : layers) settle(layer, sweep % 2 ? "out" : "in");
  }
  for (const layer of layers) settle(layer, "both");
}

// Each as near to its neighbours' middle as the others of its layer allow.
function settle(layer, side) {
  const wish = (vertex) => {
    const others = side === "both" ? [...vertex.in, ...vertex.out] : vertex[side];
    return others.length ? mean(others.map((other) => other.y)) : vertex.y;
  };
  const blocks = [];
  for (const vertex of layer) {
    const gap = vertex.isDummy ? ROW_GAP / 2 : ROW_GAP;
    let block = { vertices: [vertex], offsets: [vertex.height / 2], size: vertex.height + gap, sum: wish(vertex) - vertex.height / 2, top: 0 };
    block.top = block.sum;
    while (blocks.length && blocks.at(-1).top + blocks.at(-1).size > block.top) {
      const above = blocks.pop();
      block = {
        vertices: [...above.vertices, ...block.vertices],
        offsets: [...above.offsets, ...block.offsets.map((offset) => offset + above.size)],
        size: above.size + block.size,
        sum: above.sum + block.sum - above.size * block.vertices.length,
        top: 0,
      };
      block.top = block.sum / block.vertices.length;
    }
    blocks.push(block);
  }
  for (const { vertices, offsets, top } of blocks) vertices.forEach((vertex, at) => { vertex.y = top + offsets[at]; });
}

function drawn(nodes, vertices, links, layers) {
  const least = Math.min(0, ...layers.flat().map((vertex) => vertex.y - vertex.height / 2));
  const most = Math.max(0, ...layers.flat().map((vertex) => vertex.y + vertex.height / 2));
  for (const vertex of layers.flat()) vertex.y -= least;
  return {
    nodes: new Map(nodes.map(({ id }) => {
      const { x, y, width, height } = vertices.get(id);
      return [id, { x, y: y - height / 2, width, height }];
    })),
    edges: links.map((link) => (link.source === link.destination ? loop(link.source) : bend(link))),
    width: Math.max(1, ...layers.flat().map((vertex) => vertex.x + vertex.width)),
    height: Math.max(1, most - least),
  };
}

function bend(link) {
  const { way, isTurned } = link, points = [];
  points.push({ x: way[0].x + way[0].width, y: way[0].y + link.departure });
  const straight = Math.max(way[0].x + way[0].span, points[0].x + (link.isLabelledAtStart ? link.edge.label ?? 0 : 0));
  if (straight > points[0].x) points.push({ x: straight, y: points[0].y });
  for (const dummy of way.slice(1, -1)) {
    points.push({ x: dummy.x, y: dummy.y });
    if (dummy.span) points.push({ x: dummy.x + dummy.span, y: dummy.y });
  }
  const end = { x: way.at(-1).x, y: way.at(-1).y + link.arrival }, start = points[0];
  // under its label an arrow is straight
  if (!link.isLabelledAtStart) points.push({ x: end.x - way.at(-1).labels - 10, y: end.y });
  points.push(end);
  const labelAt = link.isLabelledAtStart ? { x: start.x + 8, y: start.y - 5, anchor: "start" } : { x: end.x - 14, y: end.y - 5, anchor: "end" };
  return { points: isTurned ? points.reverse() : points, labelAt };
}

function loop({ x, y, width, height }) {
  const top = y - height / 2, right = x + width;
  return {
    points: [{ x: right - 34, y: top }, { x: right - 34, y: top - 22 }, { x: right - 10, y: top - 22 }, { x: right - 10, y: top }],
    labelAt: { x: right - 4, y: top - 12, anchor: "start" },
    isLoop: true,
  };
}

/** The points as a smooth line for the attribute d. */
export function curve({ points, isLoop }) {
  const [first, ...rest] = points;
  if (isLoop) return `M${first.x} ${first.y}C${rest.map(({ x, y }) => `${x} ${y}`).join(" ")}`;
  let d = `M${first.x} ${first.y}`, before = first;
  for (const point of rest) {
    const middle = (before.x + point.x) / 2;
    d += before.y === point.y ? `L${point.x} ${point.y}` : `C${middle} ${before.y} ${middle} ${point.y} ${point.x} ${point.y}`;
    before = point;
  }
  return d;
}
