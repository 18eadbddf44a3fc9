// Sizes in words. Pure.

const SIZES = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]];

/** Formats a number of bytes: "35.8 MB". */
export function bytes(count) {
  const [size, name] = SIZES.find(([least]) => count >= Number(least)) ?? SIZES[SIZES.length - 1];
  return `${Number((count / Number(size)).toPrecision(3))} ${name}`;
}
