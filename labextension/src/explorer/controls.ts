/** One control for each kind of switch. */

import { element, keepKeys, once } from './dom';
import { number } from './format';
import type { Json, Switch } from './protocol';

export interface Control {
  readonly node: HTMLElement;
  /** Show a value; does not call back. */
  set(value: Json): void;
  enable(enabled: boolean): void;
}

/** `changed` is told each value that the user picks; `labelled` is the id of its label. */
export function controlFor(
  one: Switch,
  labelled: string,
  changed: (value: Json) => void
): Control {
  if (isRecord(one.value)) {
    return perRank(one, labelled, changed);
  }
  switch (one.kind) {
    case 'bool':
      return toggle(labelled, changed);
    case 'choice':
      return choice(one, labelled, changed);
    case 'log-slider':
      return logSlider(one, labelled, changed);
    case 'list':
      return list(labelled, changed);
    case 'int':
    case 'float':
      return numeric(one, labelled, changed);
  }
}

/** How a value reads. */
export function valueText(value: Json): string {
  if (value === null) {
    return 'none';
  }
  if (typeof value === 'boolean') {
    return value ? 'on' : 'off';
  }
  if (typeof value === 'number') {
    return number(value);
  }
  if (Array.isArray(value)) {
    return (value as readonly Json[]).map(valueText).join(', ');
  }
  if (typeof value === 'object') {
    const parts = Object.entries(value).filter(([, one]) => one !== 0);
    return parts.length === 0
      ? 'none'
      : parts
          .map(([rank, one]) => `rank ${rank}: ${valueText(one)}`)
          .join(', ');
  }
  return value;
}

function toggle(labelled: string, changed: (value: Json) => void): Control {
  const said = element('span', { class: 'ddpviz-toggle-word' }, 'off');
  let on = false;
  const node = element(
    'button',
    {
      class: 'ddpviz-toggle',
      attributes: {
        type: 'button',
        role: 'switch',
        'aria-checked': 'false',
        'aria-labelledby': labelled
      },
      on: {
        click: once(() => {
          set(!on);
          changed(on);
        })
      }
    },
    element('span', { class: 'ddpviz-toggle-track' }),
    said
  );
  const set = (value: Json) => {
    on = value === true;
    node.setAttribute('aria-checked', String(on));
    said.textContent = on ? 'on' : 'off';
  };
  return {
    node,
    set,
    enable: enabled => {
      node.disabled = !enabled;
    }
  };
}

function choice(
  one: Switch,
  labelled: string,
  changed: (value: Json) => void
): Control {
  const choices = [...(one.choices ?? [])];
  const same = (a: Json, b: Json) => JSON.stringify(a) === JSON.stringify(b);
  const node = keepKeys(
    element('select', {
      class: 'ddpviz-input',
      attributes: { 'aria-labelledby': labelled },
      on: {
        change: () => {
          changed(choices[node.selectedIndex] ?? null);
        }
      }
    })
  );
  const option = (value: Json) => element('option', {}, valueText(value));
  node.append(...choices.map(option));
  return {
    node,
    set: value => {
      let place = choices.findIndex(known => same(known, value));
      if (place < 0) {
        // The user's own function, which is no choice of ours, is shown all the same.
        place = choices.push(value) - 1;
        node.append(option(value));
      }
      node.selectedIndex = place;
    },
    enable: enabled => {
      node.disabled = !enabled;
    }
  };
}

const SLIDER_PLACES = 100;

/** Logarithmic, with the exact number beside it. */
function logSlider(
  one: Switch,
  labelled: string,
  changed: (value: Json) => void
): Control {
  const low = Math.log(Math.max(one.min ?? 0.01, 1e-9));
  const high = Math.log(Math.max(one.max ?? 1000, 1e-9));
  const exact = exactNumber(one, labelled, value => {
    place(value);
    changed(value);
  });
  const slider = keepKeys(
    element('input', {
      class: 'ddpviz-slider',
      attributes: {
        type: 'range',
        min: '0',
        max: String(SLIDER_PLACES),
        step: '1',
        'aria-labelledby': labelled
      },
      on: {
        input: () => {
          exact.set(picked());
          slider.setAttribute('aria-valuetext', valueText(picked()));
        },
        change: () => {
          changed(picked());
        }
      }
    })
  );
  const picked = () => {
    const share = Number(slider.value) / SLIDER_PLACES;
    return Number(Math.exp(low + share * (high - low)).toPrecision(2));
  };
  const place = (value: Json) => {
    if (typeof value === 'number') {
      const share = (Math.log(Math.max(value, 1e-9)) - low) / (high - low);
      slider.value = String(Math.round(share * SLIDER_PLACES));
      slider.setAttribute('aria-valuetext', valueText(value));
    }
  };
  return {
    node: element('div', { class: 'ddpviz-row' }, slider, exact.node),
    set: value => {
      exact.set(value);
      place(value);
    },
    enable: enabled => {
      slider.disabled = !enabled;
      exact.enable(enabled);
    }
  };
}

function numeric(
  one: Switch,
  labelled: string,
  changed: (value: Json) => void
): Control {
  return exactNumber(one, labelled, changed);
}

/** A field for a number; empty means none, where the switch may be none. */
function exactNumber(
  one: Switch,
  labelled: string,
  changed: (value: Json) => void
): Control {
  const node = keepKeys(
    element('input', {
      class: 'ddpviz-input ddpviz-number',
      attributes: {
        type: 'number',
        step: one.kind === 'int' ? '1' : 'any',
        placeholder: 'none',
        'aria-labelledby': labelled
      },
      on: {
        change: () => {
          changed(node.value === '' ? null : node.valueAsNumber);
        }
      }
    })
  );
  if (one.min !== null && one.min !== undefined) {
    node.min = String(one.min);
  }
  if (one.max !== null && one.max !== undefined) {
    node.max = String(one.max);
  }
  return {
    node,
    set: value => {
      node.value = typeof value === 'number' ? String(value) : '';
    },
    enable: enabled => {
      node.disabled = !enabled;
    }
  };
}

/** Numbers with commas between; empty means none. */
function list(labelled: string, changed: (value: Json) => void): Control {
  const node = keepKeys(
    element('input', {
      class: 'ddpviz-input',
      attributes: {
        type: 'text',
        inputmode: 'decimal',
        placeholder: 'none',
        'aria-labelledby': labelled
      },
      on: {
        change: () => {
          changed(numbersIn(node.value));
        }
      }
    })
  );
  return {
    node,
    set: value => {
      node.value = Array.isArray(value)
        ? (value as readonly Json[]).map(String).join(', ')
        : '';
    },
    enable: enabled => {
      node.disabled = !enabled;
    }
  };
}

/** What is no number goes to the kernel as it is: it knows what to say to that. */
export function numbersIn(text: string): Json {
  const words = text.split(/[\s,;]+/).filter(word => word !== '');
  if (words.length === 0) {
    return null;
  }
  return words.map(word => {
    const value = Number(word);
    return Number.isNaN(value) ? word : value;
  });
}

/** A number for each rank, {"0": 0, "1": 50}. */
function perRank(
  one: Switch,
  labelled: string,
  changed: (value: Json) => void
): Control {
  const node = element('div', {
    class: 'ddpviz-ranks-input',
    attributes: { role: 'group', 'aria-labelledby': labelled }
  });
  let fields = new Map<string, HTMLInputElement>();
  let enabled = true;
  const read = () =>
    Object.fromEntries(
      [...fields].map(([rank, field]) => [
        rank,
        field.value === '' ? 0 : field.valueAsNumber
      ])
    );
  const build = (ranks: readonly string[]) => {
    fields = new Map();
    node.replaceChildren();
    for (const rank of ranks) {
      const field = keepKeys(
        element('input', {
          class: 'ddpviz-input ddpviz-number',
          attributes: {
            type: 'number',
            min: String(one.min ?? 0),
            step: 'any'
          },
          on: {
            change: () => {
              changed(read());
            }
          }
        })
      );
      if (one.max !== null && one.max !== undefined) {
        field.max = String(one.max);
      }
      field.disabled = !enabled;
      fields.set(rank, field);
      node.append(element('label', {}, `rank ${rank}`, field));
    }
  };
  return {
    node,
    set: value => {
      const values = isRecord(value) ? value : {};
      const ranks = Object.keys(values);
      if (ranks.join() !== [...fields.keys()].join()) {
        build(ranks);
      }
      for (const [rank, field] of fields) {
        const known = values[rank];
        field.value = typeof known === 'number' ? String(known) : '0';
      }
    },
    enable: now => {
      enabled = now;
      for (const field of fields.values()) {
        field.disabled = !now;
      }
    }
  };
}

function isRecord(value: Json): value is { readonly [name: string]: Json } {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
