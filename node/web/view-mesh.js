// The view of the meshes: all of them, or one as a matrix for each entry of its file.

import { may } from "./actions.js";
import { element } from "./dom.js";
import { drawMeshes, fetchMesh, fetchPairs, MeshPicture, MESHES_PATH } from "./mesh.js";
import { place } from "./place.js";
import { setCall, setHeading } from "./view-frame.js";

export function open(box, { api, model, actions, caller, tools }) {
  const button = element("button", { type: "button", class: "plain", click: () => actions.open("mesh") }, "Mesh file …");
  const offer = () => (button.hidden = !may(caller(), "run"));
  tools.replaceChildren(button);
  offer();
  /** @type {{ name: string, isLarge: boolean, picture: MeshPicture } | null} */
  let shown = null;
  const close = () => {
    shown?.picture.close();
    shown = null;
  };

  async function drawOne(name) {
    const known = shown;
    await fetchMesh(api, name, known !== null && known.name === name && known.isLarge, (pairs, isLarge) => show(name, pairs, isLarge));
  }
  function show(name, pairs, isLarge) {
    if (place().mesh !== name || !box.isConnected) return;
    setHeading(`Mesh ${name}`);
    setCall(`/v1/meshes/${name}/${isLarge ? "matrix" : "pairs"}`);
    const ask = (keys) => fetchPairs(api, name, keys);
    if (shown?.name !== name) close();
    const picture = shown?.picture ?? new MeshPicture(box, () => model.now(), ask);
    shown = { name, isLarge, picture };
    picture.show(pairs);
  }
  async function drawAll() {
    const { items } = await api.get(MESHES_PATH);
    if (place().mesh || !box.isConnected) return;
    close();
    setHeading("Meshes");
    setCall(MESHES_PATH);
    const list = box.querySelector("#meshes") ?? element("div", { id: "meshes" });
    if (!list.isConnected) box.replaceChildren(list);
    drawMeshes(list, items, model.now());
  }
  return {
    events: ["ended", "task"],
    gap: 30_000,
    redraw: offer,
    fetch: () => (place().mesh ? drawOne(place().mesh) : drawAll()),
    close,
  };
}
