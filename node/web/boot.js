// A page on a wall has nobody to reload it: if its modules could not be fetched (the node was just
// restarting, or the network changed), it tries again by itself.

addEventListener("load", () => {
  if (!document.documentElement.dataset.started) setTimeout(() => location.reload(), 2_000);
});
