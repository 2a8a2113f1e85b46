import { Widget } from '@lumino/widgets';

import { element, setText } from '../explorer/dom';
import { number, plural, share } from '../explorer/format';
import type { SessionClient } from '../explorer/client';
import { statusPill, why } from '../explorer/stateline';
import type { IDdpSessions } from './sessions';

/** Of the session in focus: what it does, steps per second and exposed communication. */
export class DdpStatus extends Widget {
  private readonly _text: HTMLButtonElement;
  private _client: SessionClient | null = null;
  private _end: (() => void) | null = null;

  constructor(
    private readonly _sessions: IDdpSessions,
    press: () => void
  ) {
    super();
    this.addClass('ddpviz-status');
    this._text = element('button', {
      class: 'ddpviz-status-button',
      attributes: { type: 'button' },
      on: { click: press }
    });
    this.node.append(this._text);
    _sessions.changed.connect(this._bind, this);
    this._bind();
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this._sessions.changed.disconnect(this._bind, this);
      this._end?.();
      super.dispose();
    }
  }

  private _bind(): void {
    const client = this._sessions.focus?.client ?? null;
    if (client !== this._client) {
      this._end?.();
      this._client = client;
      this._end =
        client?.changed.subscribe(() => {
          this._draw();
        }) ?? null;
    }
    this._draw();
  }

  private _draw(): void {
    setText(this._text, this._client === null ? '' : words(this._client));
    this._text.title =
      this._client?.state == null
        ? 'DDP'
        : `DDP: ${why(this._client.state) || this._client.state.title}`;
  }
}

function words(client: SessionClient): string {
  const { state } = client;
  const pill = statusPill(state, client.connection);
  const parts = [`DDP ${pill.sign} ${pill.word}`];
  if (state === null || client.connection !== 'connected') {
    return parts.join('');
  }
  if (state.failure !== null) {
    const { rank } = state.failure;
    return rank === null
      ? parts.join('')
      : `${parts.join('')}: rank ${String(rank)}`;
  }
  if (state.steps_per_second !== null) {
    parts.push(`${number(state.steps_per_second)} steps/s`);
  }
  if (state.exposed_share !== null) {
    parts.push(`${share(state.exposed_share)} exposed`);
  }
  if (state.findings > 0) {
    parts.push(`⚑ ${plural(state.findings, 'finding')}`);
  } else if (state.audited === true) {
    parts.push('✓ no findings');
  }
  return parts.join(' · ');
}
