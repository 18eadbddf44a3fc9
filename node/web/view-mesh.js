// The view of the meshes: all of them, or one as a matrix for each entry of its file.

import { may } from "./actions.js";
import { element } from "./dom.js";
import { drawMeshes, fetchMesh, MeshPicture, MESHES_PATH } from "./mesh.js";
import { place } from "./place.js";
import { setCall, setHeading } from "./view-frame.js";

export function open(box, { api, model, actions, caller, tools }) {
  const button = element("button", { type: "button", class: "plain", click: () => actions.open("mesh") }, "Mesh file …");
  const offer = () => (button.hidden = !may(caller(), "run"));
  tools.replaceChildren(button);
  offer();
  /** @type {{ name: string, picture: MeshPicture } | null} */
  let shown = null;
  const close = () => {
    shown?.picture.close();
    shown = null;
  };

  async function drawOne(name) {
    const here = () => place().mesh === name && box.isConnected;
    const first = shown?.name !== name;
    await fetchMesh(api, name, (pairs, more) => {
      if (!here()) return false;
      setHeading(`Mesh ${name}`);
      setCall(`/v1/meshes/${name}/pairs`);
      if (shown?.name !== name) {
        close();
        shown = { name, picture: new MeshPicture(box, () => model.now()) };
      }
      // What is shown whole stays whole: only at first its pages are shown as they come.
      if (!more || first) shown?.picture.show(pairs, more);
      return true;
    });
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
