// Elements made and changed in place, so that nothing flickers and nothing is ever parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

export function html(name, className = "", ...children) {
  const element = document.createElement(name);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** As many rows as there are items: `make` builds one, `fill` writes an item into it. */
export function rows(body, items, make, fill) {
  while (body.children.length > items.length) body.lastElementChild.remove();
  while (body.children.length < items.length) body.append(make());
  items.forEach((item, i) => fill(body.children[i], item));
}

/** Calls back with the size of an element in pixels, now and whenever it changes. */
export function whenSized(element, draw) {
  new ResizeObserver(() => draw(element.clientWidth, element.clientHeight)).observe(element);
}
