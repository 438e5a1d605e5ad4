// Comforts only: without this script the page shows the same.
(() => {
  'use strict';
  const chips = [...document.querySelectorAll('.chip')];
  const boxOf = who => document.getElementById('show' + who);
  const ROWS = 14;

  // On a small screen the choice of contenders would cover the plots.
  const who = document.querySelector('.who');
  if (who && window.innerWidth < 960) who.open = false;

  // Everybody, or the contenders shown at first, or only the subject.
  const buttons = document.querySelector('.buttons');
  if (buttons) {
    const initially = new Set(chips.map(chip => chip.control).filter(box => box.defaultChecked));
    const choices = [['All', () => true], ['As at first', box => initially.has(box)],
      ['None but the subject', box => box.dataset.subject !== undefined]];
    for (const [label, shown] of choices) {
      const button = document.createElement('button');
      button.type = 'button';
      button.textContent = label;
      button.addEventListener('click', () => chips.forEach(chip => { chip.control.checked = shown(chip.control); }));
      buttons.append(button);
    }
  }

  // A contender that is pointed at where it is named stands out in all plots.
  for (const named of [...chips, ...document.querySelectorAll('.legend li')]) {
    const who = named.dataset.who ?? named.control.dataset.who;
    const lines = () => document.querySelectorAll('.line.w' + who);
    named.addEventListener('pointerenter', event => {
      if (event.pointerType === 'touch' || !boxOf(who).checked) return;
      lines().forEach(line => line.classList.add('focus'));
      document.body.classList.add('focused');
    });
    named.addEventListener('pointerleave', () => {
      lines().forEach(line => line.classList.remove('focus'));
      document.body.classList.remove('focused');
    });
  }

  // The numbers at the column that is pointed at, the largest first. They come from the plot's own table.
  const tip = document.createElement('div');
  tip.className = 'tip';
  tip.hidden = true;
  tip.setAttribute('aria-hidden', 'true');
  document.body.append(tip);

  const cell = (row, ...content) => {
    const cell = row.insertCell();
    cell.append(...content);
  };

  const fill = (figure, column) => {
    const table = figure.querySelector('table');
    const rows = [...table.tBodies[0].rows].flatMap(row => {
      const data = row.cells[column + 1];
      const value = data && data.dataset.v;
      return value !== undefined && boxOf(row.dataset.who).checked ? [{ row, data, value: Number(value) }] : [];
    });
    rows.sort((a, b) => b.value - a.value);
    const heading = document.createElement('b');
    heading.textContent = table.tHead.rows[0].cells[column + 1].textContent;
    const list = document.createElement('table');
    for (const { row, data } of rows.slice(0, ROWS)) {
      const entry = list.insertRow();
      entry.className = row.classList.contains('subject') ? 'subject' : '';
      const swatch = boxOf(row.dataset.who).closest('.chip').querySelector('svg').cloneNode(true);
      cell(entry, swatch, row.cells[0].textContent);
      cell(entry, data.firstChild.textContent);
    }
    tip.replaceChildren(heading, list);
    if (rows.length > ROWS) tip.append(`and ${rows.length - ROWS} more`);
    if (rows.length === 0) tip.append('nobody');
  };

  const place = event => {
    const gap = 14;
    const box = tip.getBoundingClientRect();
    const right = event.clientX + gap + box.width <= window.innerWidth;
    const x = right ? event.clientX + gap : event.clientX - gap - box.width;
    const y = Math.min(event.clientY + gap, window.innerHeight - box.height - 4);
    tip.style.left = Math.max(4, Math.min(x, window.innerWidth - box.width - 4)) + 'px';
    tip.style.top = Math.max(4, y) + 'px';
  };

  for (const plot of document.querySelectorAll('svg.plot')) {
    const columns = plot.dataset.columns.split(' ').map(Number);
    const guide = plot.querySelector('.guide');
    // The browser's own tips would lie over ours; the words stay for those who listen.
    plot.setAttribute('aria-label', plot.querySelector('title').textContent);
    plot.removeAttribute('aria-labelledby');
    plot.querySelectorAll('title').forEach(title => title.remove());

    const show = event => {
      const box = plot.getBoundingClientRect();
      const x = (event.clientX - box.left) * plot.viewBox.baseVal.width / box.width;
      const distance = at => Math.abs(at - x);
      const column = columns.reduce((best, at, index) => distance(at) < distance(columns[best]) ? index : best, 0);
      guide.setAttribute('x1', columns[column]);
      guide.setAttribute('x2', columns[column]);
      guide.classList.add('on');
      fill(plot.closest('figure'), column);
      tip.hidden = false;
      place(event);
    };
    const hide = () => {
      guide.classList.remove('on');
      tip.hidden = true;
    };
    plot.addEventListener('pointermove', show);
    plot.addEventListener('pointerdown', show);
    plot.addEventListener('pointerleave', hide);
    plot.addEventListener('pointercancel', hide);
  }
})();
