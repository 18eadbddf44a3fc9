// The view of the meshes: a list of them, or one as a matrix for each of its tests.

import { may } from "./actions.js";
import { element } from "./dom.js";
import { drawMesh, drawMeshes, fetchMesh, MESHES_PATH } from "./mesh.js";
import { place } from "./place.js";
import { setCall, setHeading } from "./view-frame.js";

export function open(box, { api, model, actions, caller, tools }) {
  const button = element("button", { type: "button", class: "plain", click: () => actions.open("mesh") }, "Mesh file …");
  const offer = () => (button.hidden = !may(caller(), "run"));
  tools.replaceChildren(button);
  offer();
  // The figure that is shown of each entry.
  const figures = new Map();
  async function drawOne(name) {
    const found = await fetchMesh(api, name);
    if (place().mesh !== name || !box.isConnected) return;
    setHeading(`Mesh ${name}`);
    setCall(`/v1/meshes/${name}/pairs`);
    const redraw = () => drawMesh(box, found, { now: model.now(), figures, redraw });
    redraw();
  }
  async function drawAll() {
    const { items } = await api.get(MESHES_PATH);
    if (place().mesh || !box.isConnected) return;
    setHeading("Meshes");
    setCall(MESHES_PATH);
    drawMeshes(box, items, model.now());
  }
  return {
    events: ["ended", "task"],
    gap: 30_000,
    redraw: offer,
    fetch: () => (place().mesh ? drawOne(place().mesh) : drawAll()),
  };
}
