// Nobody reloads a page on a wall display, so it reloads itself if its modules could not be fetched,
// for example while the node was restarting or the network changed.

addEventListener("load", () => {
  if (!document.documentElement.dataset.started) setTimeout(() => location.reload(), 2_000);
});
