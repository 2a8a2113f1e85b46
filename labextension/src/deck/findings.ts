/**
 * What the chosen step changes above the timeline: its title stands there as text, which wraps, and
 * the heading names the step.
 */

import { drawn, plots, textOf, widgets } from './bokeh';
import type { Model } from './bokeh';

export function findings(): void {
  const slide = document.getElementById('timeline');
  const holder = slide?.querySelector('.figure');
  if (!slide || !holder) {
    return;
  }
  void drawn().then(bokeh => {
    for (const { el, model } of bokeh.index.roots) {
      if (holder.contains(el)) {
        followTitle(model);
        followStep(model, slide);
      }
    }
  });
}

function followTitle(model: Model): void {
  const element = document.getElementById('finding-timeline');
  const title = plots(model)[0]?.title;
  if (element !== null && typeof title === 'object' && title !== null) {
    title.properties['text']?.change.connect(() => {
      element.textContent = textOf(title);
    });
  }
}

function followStep(model: Model, slide: HTMLElement): void {
  const heading = slide.querySelector('h2');
  const told = slide.dataset['titles'];
  const select = widgets(model).find(({ name }) => name === 'step');
  if (heading !== null && told !== undefined && select !== undefined) {
    const titles = new Map(
      Object.entries(JSON.parse(told) as Readonly<Record<string, string>>)
    );
    select.properties['value']?.change.connect(() => {
      heading.textContent =
        titles.get(String(select.value)) ?? heading.textContent;
    });
  }
}
