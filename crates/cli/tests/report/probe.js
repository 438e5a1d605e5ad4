// Looks at the page as it is drawn and works its controls. What is wrong goes into `wrong`; `scripted` says whether the
// page's own script is there. All of it is synchronous: asking for a box makes the browser lay the page out.
(() => {
  'use strict';
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const shown = element => element.getClientRects().length > 0;
  const check = (right, what) => { if (!right) wrong.push(what); };
  const name = element => element.id || element.getAttribute('class') || element.textContent.slice(0, 40);
  const root = document.documentElement;
  const findings = { title: document.title, wrong };

  const fits = when => {
    check(root.scrollWidth <= window.innerWidth, `${when}: the page is ${root.scrollWidth} wide`);
  };
  fits('at first');

  // Plots: boxes that can be seen, words inside the picture, and none over another.
  const overlap = (a, b) =>
    a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  const look = plot => {
    const title = plot.getAttribute('aria-label') || plot.querySelector('title').textContent;
    check(plot.getBBox().width > 0 && plot.getBBox().height > 0, `${title}: nothing drawn`);
    const box = plot.getBoundingClientRect();
    check(box.width >= 200 && box.height >= 100, `${title}: ${box.width} x ${box.height}`);
    check(box.left >= 0 && box.right <= window.innerWidth, `${title}: reaches out of the window`);
    const words = all('.frame text', plot).map(text => [text.textContent, text.getBoundingClientRect()]);
    check(words.length >= 4, `${title}: ${words.length} labels`);
    words.forEach(([text, a], index) => {
      check(a.width > 0 && a.left >= box.left - 1 && a.right <= box.right + 1 && a.top >= box.top - 1
        && a.bottom <= box.bottom + 1, `${title}: '${text}' reaches out of the picture`);
      words.slice(index + 1).forEach(([other, b]) => check(!overlap(a, b), `${title}: '${text}' over '${other}'`));
    });
    const lines = all('.line', plot).filter(shown);
    check(lines.length > 0, `${title}: no line`);
    for (const line of lines) {
      const course = line.querySelector('polyline:not([opacity])').getBBox();
      check(course.x >= 0 && course.y >= 0 && course.x + course.width <= 340 && course.y + course.height <= 224,
        `${title}: a line reaches out of the picture`);
      check(!/NaN|Infinity|undefined/.test(line.innerHTML), `${title}: a number that is none`);
    }
    // Who is who stands below the plot or below its row, for all that are drawn, and nothing of it is cut.
    const legend = all('.legend', plot.closest('.panels')).filter(shown)
      .find(legend => legend.getBoundingClientRect().top >= box.bottom - 1);
    check(legend !== undefined, `${title}: no legend below`);
    if (legend === undefined) return;
    const below = legend.getBoundingClientRect();
    check(below.top - box.bottom <= 150, `${title}: the legend is ${below.top - box.bottom} below`);
    check(below.left >= 0 && below.right <= window.innerWidth && legend.scrollWidth <= legend.clientWidth,
      `${title}: the legend reaches out`);
    const named = all('li', legend).filter(shown);
    check(named.length >= lines.length, `${title}: ${lines.length} lines and ${named.length} names`);
    for (const entry of named) {
      const piece = entry.querySelector('svg').getBoundingClientRect();
      const line = lines.find(line => line.classList.contains('w' + entry.dataset.who));
      check(piece.width >= 20 && piece.height >= 5, `${title}: a piece of a line is ${piece.width} wide`);
      const colour = element => element.style.getPropertyValue('--c');
      check(line === undefined || colour(line) === colour(document.getElementById('piece' + entry.dataset.who)),
        `${title}: another colour in the legend`);
    }
    return lines.length;
  };
  const plots = all('svg.plot');
  findings.plots = plots.length;
  findings.shown = plots.filter(shown).length;
  plots.filter(shown).forEach(look);

  // Each of several views, one at a time; of all groups of views together, for the page is laid out anew each time.
  const groups = all('.views');
  const first = groups.map(views => views.querySelector('input:checked'));
  for (let index = 0, most = Math.max(...groups.map(views => all('input', views).length)); index < most; index += 1) {
    const chosen = groups.filter(views => all('input', views).length > index);
    for (const views of chosen) all('input', views)[index].checked = true;
    for (const views of chosen) {
      const visible = all(':scope > .view', views).filter(shown);
      check(visible.length <= 1 && visible.every(view => view.classList.contains('view' + index)),
        `${name(views)}: ${visible.length} views at once`);
      visible.forEach(view => all('svg.plot', view).forEach(look));
    }
    fits('view ' + index);
  }
  for (const input of first) input.checked = true;

  // Bars have lengths, and the fastest comes first.
  findings.bars = 0;
  for (const chart of all('.bars')) {
    const lengths = all('.bar', chart).filter(shown).map(bar => bar.querySelector('rect').getBoundingClientRect().width);
    findings.bars += lengths.length;
    // Where nothing has been measured yet, there is no bar.
    check(lengths.length === 0 || lengths[0] > 20, `the longest bar has ${lengths[0]}`);
    check(lengths.every((length, index) => index === 0 || length <= lengths[index - 1] + 0.1), 'bars not in order');
  }

  // The heat map's words can be read.
  const channel = value => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const luminance = colour => {
    const [r, g, b] = colour.match(/[\d.]+/g).slice(0, 3).map(value => channel(value / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const cells = all('.heat tbody td');
  findings.cells = cells.filter(shown).length;
  for (const cell of [...cells, ...all('.scale li')].filter(cell => /\bh\d/.test(cell.className))) {
    const style = getComputedStyle(cell);
    const [lighter, darker] = [luminance(style.color), luminance(style.backgroundColor)].sort((a, b) => b - a);
    const contrast = (lighter + 0.05) / (darker + 0.05);
    check(contrast >= 4.5, `'${cell.textContent}' on ${cell.className}: contrast ${contrast.toFixed(2)}`);
  }

  // The tip: at each column, inside the window, the largest number first.
  if (scripted && plots.length > 0) {
    const plot = plots[0];
    plot.scrollIntoView({ block: 'center', behavior: 'instant' });
    const box = plot.getBoundingClientRect();
    const tip = document.querySelector('.tip');
    const columns = plot.dataset.columns.split(' ').map(Number);
    check(tip.hidden, 'a tip that nobody asked for');
    findings.columns = 0;
    const heads = all('thead th', plot.closest('figure')).slice(1);
    columns.forEach((x, index) => {
      const at = { bubbles: true, clientX: box.left + x * box.width / 340, clientY: box.top + box.height / 2 };
      plot.dispatchEvent(new PointerEvent('pointermove', at));
      const tipped = tip.getBoundingClientRect();
      check(!tip.hidden && tipped.width > 50, 'no tip');
      check(tipped.left >= 0 && tipped.right <= window.innerWidth && tipped.top >= 0
        && tipped.bottom <= window.innerHeight, `a tip outside the window at column ${index}`);
      check(tip.querySelector('b').textContent === heads[index].textContent, 'the tip is about another column');
      findings.columns += all('tr', tip).length > 0 ? 1 : 0;
    });
    plot.dispatchEvent(new PointerEvent('pointerleave'));
    check(tip.hidden, 'the tip stays');
    for (const button of all('.buttons button')) button.click();
    check(all('.chip input:checked').length === 1, 'the last button leaves the subject alone');
    all('.buttons button')[1].click();
    check(all('.chip input').every(box => box.checked === box.defaultChecked), 'not as at first');
    check(tip.querySelectorAll('img, script').length === 0, 'a name became an element');
  }

  all('details').forEach(details => { details.open = true; });
  fits('with all tables open');

  // A lock that is not chosen is nowhere, and is back when it is. (The browser lays out a closed table anew for each of
  // its rows that it is asked for.)
  const subject = document.querySelector('.chip input[data-subject]');
  const ours = () => all('.w' + subject.dataset.who).filter(element => element.matches('tr.subject, g.line') && shown(element));
  const before = ours().length;
  check(before > 0, 'the subject is not shown');
  subject.checked = false;
  check(ours().length === 0, 'the subject is shown though it is not chosen');
  subject.checked = true;
  check(ours().length === before, 'the subject is not back');

  // A name that a line can hold is in one piece, or broken at its hyphens.
  const range = document.createRange();
  findings.names = 0;
  for (const cell of all('th.name').filter(shown)) {
    const words = [...cell.childNodes].filter(node => node.nodeType === Node.TEXT_NODE).at(-1);
    if (!words || words.data.length > 16) continue;
    range.selectNodeContents(words);
    const lines = new Set([...range.getClientRects()].map(box => Math.round(box.top))).size;
    findings.names += 1;
    check(lines <= words.data.split('-').length, `'${words.data}' takes ${lines} lines`);
    check(cell.scrollWidth <= cell.clientWidth + 1, `'${words.data}' is cut`);
  }
  // Rows of sentences are not wider than the window.
  for (const table of all('table.stack').filter(shown)) {
    const { right } = table.getBoundingClientRect();
    check(right <= window.innerWidth, `a table of words ends at ${right}`);
  }
  check(performance.getEntriesByType('resource').length === 0, 'something was asked of a network');

  found(findings);
})();
