import type { BokehDocument, BokehModel, BokehRoot, BokehViews } from './bokeh';
import type { SessionClient, Watcher } from './client';
import { element, setText, show } from './dom';
import { Endings } from './emitter';
import { Facts } from './facts';
import { age } from './format';
import type { ViewUpdate } from './frame';
import type { Figure, Json, ThemePart } from './protocol';
import { viewLabel } from './protocol';
import { Zoom, arrange } from './plot';
import { Readings } from './readings';
import { Replay } from './replay';
import { mark, meaning, textAt } from './selection';
import type { Selected } from './selection';
import { onTheme, themeNow } from './theme';
import { messageOf } from './transport';

/** Until a figure that could not be had is asked for again. */
const RETRY_MS = 1000;

interface Embedded {
  document: BokehDocument;
  views: BokehViews;
  root: BokehRoot;
  figure: Figure;
  epoch: number;
  zoom: Zoom;
}

/** The page keeps no document that nobody shows. */
function release(root: Embedded['root'], document: Embedded['document']): void {
  document.clear();
  const place = root.documents.indexOf(document);
  if (place >= 0) {
    root.documents.splice(place, 1);
  }
}

/** One view as a Bokeh figure that lives: it is drawn while it can be seen, and only then. */
export class FigureView implements Watcher {
  readonly node: HTMLElement;
  width_px = 0;

  private readonly _title: HTMLElement;
  private readonly _canvas: HTMLElement;
  private readonly _note: HTMLElement;
  private readonly _facts: Facts;
  private readonly _readings = new Readings(key =>
    this._client.read(this.view, key)
  );
  private readonly _replay = new Replay(() => {
    if (this._newest !== null) {
      this._client.lookAt(this._newest.step);
    }
  });
  private readonly _endings = new Endings();
  private _embedded: Embedded | null = null;
  /** What is to be drawn once the figure is there. */
  private _newest: ViewUpdate | null = null;
  private _fetching = false;
  private _retry: ReturnType<typeof setTimeout> | undefined;
  private _problem = '';
  private _marking = false;
  private _disposed = false;

  /** `folded`: what is said below it takes no room until it is wanted. */
  constructor(
    private readonly _client: SessionClient,
    readonly view: string,
    folded = false
  ) {
    this._facts = new Facts(folded);
    this._title = element('h4', { class: 'ddpviz-figure-title' });
    this._canvas = element('div', { class: 'ddpviz-figure-canvas' });
    this._note = element('p', { class: 'ddpviz-figure-note' });
    this.node = element(
      'div',
      {
        class: 'ddpviz-figure',
        attributes: {
          role: 'region',
          'aria-label': viewLabel(view),
          'data-view': view
        }
      },
      this._title,
      this._note,
      this._replay.node,
      this._canvas,
      this._readings.node,
      this._facts.node
    );
    const sizes = new ResizeObserver(() => {
      this._sized();
    });
    sizes.observe(this.node);
    const clock = setInterval(() => {
      this._say();
    }, 1000);
    this._endings.add(
      () => {
        sizes.disconnect();
      },
      () => {
        clearInterval(clock);
      },
      _client.watch(this),
      _client.changed.subscribe(() => {
        this._stateChanged();
      }),
      _client.selection.subscribe(selected => {
        this._mark(selected);
      }),
      onTheme(() => {
        this._applyTheme();
      })
    );
    this._say();
  }

  dispose(): void {
    this._disposed = true;
    clearTimeout(this._retry);
    this._replay.dispose();
    this._endings.end();
    this._remove();
  }

  /** The figure as a PNG; null where there is none. */
  async picture(): Promise<Blob | null> {
    for (const view of this._embedded?.views ?? []) {
      if (view.export !== undefined) {
        return view.export('png').to_blob();
      }
    }
    return null;
  }

  draw(update: ViewUpdate): void {
    this._newest = update;
    const embedded = this._embedded;
    if (
      embedded === null ||
      embedded.epoch !== this._client.epoch ||
      embedded.figure.structure !== update.structure
    ) {
      this._fetch();
      return;
    }
    this._apply(embedded, update);
    this._say();
  }

  // --- the figure itself -------------------------------------------------------------------------

  private _fetch(): void {
    if (
      this._fetching ||
      // What failed waits for its time, however many states come until then.
      this._retry !== undefined ||
      this._disposed ||
      this.width_px === 0 ||
      this._client.connection !== 'connected'
    ) {
      return;
    }
    this._fetching = true;
    this._embed()
      .then(
        () => {
          this._problem = '';
        },
        (error: unknown) => {
          this._problem = messageOf(error);
          this._retry = setTimeout(() => {
            this._retry = undefined;
            this._fetchIfStale();
          }, RETRY_MS);
        }
      )
      .finally(() => {
        this._fetching = false;
        this._say();
      });
  }

  /** Also while something was waited for. */
  private _ended(): boolean {
    return this._disposed;
  }

  private async _embed(): Promise<void> {
    const epoch = this._client.epoch;
    const figure = await this._client.figure(this.view);
    const root = await this._client.bokeh(figure.bokeh);
    if (this._disposed || this.width_px === 0) {
      return;
    }
    // Embedded beside the old one, which stays until the new one is drawn: nothing flickers.
    const place = element('div', { class: 'ddpviz-figure-place' });
    this._canvas.append(place);
    let views: BokehViews;
    try {
      views = await root.embed.embed_item(figure.item, place);
    } catch (error) {
      place.remove();
      throw error;
    }
    const [first] = views;
    const document = first?.model.document ?? null;
    if (this._ended()) {
      views.clear();
      if (document !== null) {
        release(root, document);
      }
      return;
    }
    if (document === null) {
      place.remove();
      throw new Error(
        `Found no figure in what the kernel sent for ${this.view}.`
      );
    }
    this._remove(place);
    const zoom = new Zoom(document, figure.parts?.['x_range']);
    const embedded = { document, views, root, figure, epoch, zoom };
    this._embedded = embedded;
    arrange(document, figure.parts, this.width_px);
    this._applyTheme();
    this._listen(embedded);
    const cursor = figure.sources['cursor'];
    this._replay.attach(
      cursor === undefined ? null : document.get_model_by_id(cursor)
    );
    if (this._newest?.structure === figure.structure) {
      this._apply(embedded, this._newest);
    }
  }

  private _remove(but: HTMLElement | null = null): void {
    const embedded = this._embedded;
    this._embedded = null;
    if (embedded !== null) {
      embedded.views.clear();
      release(embedded.root, embedded.document);
    }
    for (const child of [...this._canvas.children]) {
      if (child !== but) {
        child.remove();
      }
    }
  }

  private _apply(embedded: Embedded, update: ViewUpdate): void {
    const { document, figure } = embedded;
    this._marking = true;
    try {
      for (const [name, columns] of Object.entries(update.sources)) {
        const id = figure.sources[name];
        const source = id === undefined ? null : document.get_model_by_id(id);
        source?.setv({ data: columns });
      }
      const events = changes(
        Object.entries(embedded.zoom.keep(update.properties))
      );
      if (events.length > 0) {
        document.apply_json_patch({ events });
      }
    } finally {
      this._marking = false;
    }
    this._mark(this._client.selected);
    this._replay.drawn();
    setText(this._title, update.title);
    this._facts.tell(update.facts);
    this._readings.offer(update.readings);
  }

  private _applyTheme(): void {
    const embedded = this._embedded;
    if (embedded !== null) {
      const events = changes(embedded.figure.theme[themeNow()]);
      if (events.length > 0) {
        embedded.document.apply_json_patch({ events });
      }
    }
  }

  // --- linked selection --------------------------------------------------------------------------

  private _listen(embedded: Embedded): void {
    const selections = new Map<unknown, BokehModel>();
    for (const id of Object.values(embedded.figure.sources)) {
      const source = embedded.document.get_model_by_id(id);
      if (source?.selected !== undefined) {
        selections.set(source.selected, source);
      }
    }
    embedded.document.on_change(event => {
      const source = selections.get(event.model);
      if (source === undefined || this._marking || event.attr !== 'indices') {
        return;
      }
      const [row] = source.selected?.indices ?? [];
      const key = row === undefined ? '' : textAt(source.data, 'reading', row);
      if (key !== '') {
        this._readings.open(key);
      }
      const found = row === undefined ? null : meaning(source.data ?? {}, row);
      if (found === null) {
        this._client.select({});
        return;
      }
      // In the timeline all rows are of the step that is looked at already.
      const { step, ...rest } = found;
      this._client.select(
        step === undefined || this.view === 'timeline' ? rest : found
      );
    });
  }

  private _mark(selected: Selected): void {
    const embedded = this._embedded;
    if (embedded === null) {
      return;
    }
    this._marking = true;
    try {
      for (const id of Object.values(embedded.figure.sources)) {
        const source = embedded.document.get_model_by_id(id);
        if (source !== null) {
          mark(source, selected);
        }
      }
    } finally {
      this._marking = false;
    }
  }

  // --- what is said above it ---------------------------------------------------------------------

  private _sized(): void {
    const width = this.node.isConnected ? this.node.clientWidth : 0;
    if (width !== this.width_px) {
      this.width_px = width;
      if (this._embedded !== null && width > 0) {
        const { document, figure } = this._embedded;
        arrange(document, figure.parts, width);
      }
      this._client.look();
      this._fetchIfStale();
    }
  }

  private _stateChanged(): void {
    if (this._client.connection === 'connected') {
      this._fetchIfStale();
    }
    this._say();
  }

  private _fetchIfStale(): void {
    const embedded = this._embedded;
    if (embedded === null || embedded.epoch !== this._client.epoch) {
      this._fetch();
    }
  }

  private _say(): void {
    const gone = this._client.connection !== 'connected';
    this.node.classList.toggle(
      'ddpviz-mod-old',
      gone && this._embedded !== null
    );
    const text = this._words(gone);
    setText(this._note, text);
    show(this._note, text !== '');
  }

  private _words(gone: boolean): string {
    if (gone && this._embedded !== null) {
      return `Not connected: this is from ${age(this._client.age_s)} ago.`;
    }
    if (gone) {
      return 'Waits for the kernel.';
    }
    if (this._embedded === null) {
      return this._problem === '' ? 'Loading …' : this._problem;
    }
    return this._problem;
  }
}

function changes(
  parts: ThemePart | [string, Readonly<Record<string, Json>>][]
): Json[] {
  const events: Json[] = [];
  for (const [id, properties] of parts) {
    for (const [attr, value] of Object.entries(properties)) {
      events.push({ kind: 'ModelChanged', model: { id }, attr, new: value });
    }
  }
  return events;
}
