// The view of the meshes: a list of them, or one as a matrix for each of its tests.

import { drawMesh, drawMeshes, fetchMesh, MESHES_PATH } from "./mesh.js";
import { place } from "./place.js";
import { setCall, setHeading } from "./views.js";

export function open(box, { api, model }) {
  async function drawOne(name) {
    const found = await fetchMesh(api, name);
    if (place().mesh !== name) return;
    setHeading(`Mesh ${name}`);
    setCall(`/v1/meshes/${name}/pairs`);
    drawMesh(box, found, model.now());
  }
  async function drawAll() {
    const { items } = await api.get(MESHES_PATH);
    if (place().mesh) return;
    setHeading("Meshes");
    setCall(MESHES_PATH);
    drawMeshes(box, items, model.now());
  }
  return {
    events: ["ended", "task"],
    gap: 30_000,
    fetch: () => (place().mesh ? drawOne(place().mesh) : drawAll()),
  };
}
