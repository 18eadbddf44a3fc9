// Evaluated in the page: every visible text whose contrast is below 4.5 (WCAG 2.2, AA).
(() => {
    const pen = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    const rgb = (colour, under) => {
        for (const layer of [under, colour].filter(Boolean)) {
            pen.fillStyle = layer;
            pen.fillRect(0, 0, 1, 1);
        }
        return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
    };
    const luminance = (colour) => colour
        .map((c) => c / 255)
        .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const ground = (e) => {
        const colour = getComputedStyle(e).backgroundColor;
        return colour === 'rgba(0, 0, 0, 0)' && e.parentElement ? ground(e.parentElement) : colour;
    };
    const low = [];
    for (const e of document.querySelectorAll('body *')) {
        const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
        if (!own || !e.checkVisibility() || e.closest('script, .changed')) continue;
        const under = ground(e);
        const [a, b] = [getComputedStyle(e).color, under].map((c) => luminance(rgb(c, under)));
        const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (contrast < 4.5) low.push(`${e.tagName}.${e.className} ${contrast.toFixed(2)}: ${e.innerText}`);
    }
    return low;
})();
