/** What the kernel and the browser say to each other; see ddpviz/explorer in Python. */

export type Json =
  | string
  | number
  | boolean
  | null
  | readonly Json[]
  | { readonly [name: string]: Json };

export type Status =
  | 'idle'
  | 'training'
  | 'starting'
  | 'restarting'
  | 'loading'
  | 'failed'
  | 'closed'
  | 'waiting'
  | 'demonstrating'
  | 'comparing';

export interface RankState {
  rank: number;
  pid: number | null;
  /**
   * "idle", "stepping", "in a cell", "in <collective n (cause)>", "dead", or the session's own
   * "starting", "loading", "restarting".
   */
  state: string;
  device: string;
  hostname: string;
  step: number;
}

/** A rank beside a collective that hangs. */
export interface RankWaiting {
  rank: number;
  /** "in it", "has not entered it", "is in another", "is through it", "failed", "had ended". */
  state: string;
  /** "" where it is in none. */
  collective: string;
  /** Its bytes with their unit, "" where it is in none. */
  size: string;
  seconds: number;
  /** "file:line" of the user's own code, "" where it is not known. */
  where: string;
  function: string;
  code: string;
  /** The first names in the bucket, where it is one. */
  parameters: readonly string[];
  more_parameters: number;
}

export interface Failure {
  message: string;
  rank: number | null;
  step: number | null;
}

export interface SessionState {
  session: string;
  /** It is a recording that was loaded: nothing runs. */
  recording?: boolean;
  name: string;
  workload: string;
  backend: string;
  world_size: number;
  status: Status;
  /** Another number whenever the settings are others. */
  configured?: number;
  /** Why it is in that status, in one sentence; "" where there is nothing to say. */
  reason: string;
  step: number;
  steps_per_second: number | null;
  /** Exposed communication as a share of the step, 0 to 1. */
  exposed_share: number | null;
  step_ms: number | null;
  overlap: number | null;
  /** What to do next, "press Start to train"; "" for nothing. */
  hint: string;
  /** First and last step that can be looked at; empty or absent while there is none. */
  follow_steps?: readonly number[] | null;
  failure: Failure | null;
  /** Who waits in which collective for whom; empty while nobody does. */
  waiting?: readonly RankWaiting[];
  ranks: readonly RankState[];
  age_s: number;
  findings: number;
  /** What the audit found, worst first; those of `findings` that are not of the recording itself. */
  audit?: readonly AuditFinding[];
  /** Whether the audit has looked, and what its findings do not cover, a sentence each. */
  audited?: boolean;
  unchecked?: readonly string[];
  title: string;
}

/** One cause, however many steps it shows in. */
export interface AuditFinding {
  kind: string;
  severity: 'wrong numbers' | 'failure' | 'slow' | 'note';
  what: string;
  /** The first step it shows in, -1 for before the first. */
  since: number;
  evidence: string;
  cause: string;
  remedy: string;
  sure: string;
  /** The view that shows it, and at which step; "" and null for none. */
  view: string;
  step: number | null;
  /** Ranks it shows on, and the first of the names of parameters, buffers or buckets. */
  ranks?: readonly number[];
  names?: readonly string[];
  more_names?: number;
}

export type SwitchKind =
  'bool' | 'log-slider' | 'choice' | 'int' | 'float' | 'list';

export interface Switch {
  name: string;
  label: string;
  explanation: string;
  kind: SwitchKind;
  value: Json;
  choices?: readonly Json[] | null;
  min?: number | null;
  max?: number | null;
  step?: number | null;
  group: 'first' | 'more';
  /** What a change takes. */
  needs: string;
  /** Why it cannot be changed now; null where it can. */
  disabled: string | null;
  needs_by_choice?: Readonly<Record<string, string>> | null;
}

export type Values = Readonly<Record<string, Json>>;

/** What a change will need, and why it is refused if it is. */
export interface Prediction {
  needs: string;
  refused: string | null;
}

/** What the article says, and whether it is so. */
export interface Claim {
  claim: string;
  verdict: string;
}

export interface Demonstration {
  name: string;
  title: string;
  claims: readonly Claim[];
  /** Name of the view that shows it. */
  view: string;
}

/** Demonstrations about the same. */
export interface DemonstrationFamily {
  family: string;
  demonstrations: readonly Demonstration[];
}

/** What a demonstration found. */
export interface Demonstrated {
  name: string;
  title: string;
  /** Whether the measured numbers are as the title says. */
  held: boolean;
  /** What to look at, with measured numbers. */
  sentences: readonly string[];
  view: string;
  step: number;
  /** What became of the session's workload. */
  remark: string;
}

/** Something to compare by, and why it cannot be had here. */
export interface Choice {
  name: string;
  disabled: string | null;
  /** What has to be said of it, "" for nothing. */
  remark: string;
}

export interface Comparable {
  modes: readonly Choice[];
  backends: readonly Choice[];
}

export type Unit = 'ms' | 'bytes' | 'count' | 'relative' | 'flag';

export interface ComparedColumn {
  name: string;
  label: string;
  unit: Unit;
}

/** What a comparison found: a row for each configuration. */
export interface Compared {
  verdict: string;
  columns: readonly ComparedColumn[];
  rows: readonly Values[];
  remark: string;
}

/** A slide that a deck may have, and why it cannot. */
export interface SlideOffer {
  name: string;
  title: string;
  disabled: string | null;
}

/** What a deck is made of. */
export interface DeckAsked {
  /** Whether the browser keeps it, or the kernel's working directory. */
  place: 'browser' | 'kernel';
  slides: readonly string[];
  /** By slide, in place of its own. */
  titles: Readonly<Record<string, string>>;
  title: string;
  /** The first of them is shown; null for the median one. */
  steps: readonly number[] | null;
  theme: string;
}

/** A deck that was made: its file's name, its size as text, and its path where it was saved. */
export interface Deck {
  name: string;
  size: string;
  path?: string;
}

/** Properties that a theme sets, by the id of the model. */
export type ThemePart = readonly (readonly [
  string,
  Readonly<Record<string, Json>>
])[];

export interface Figure {
  /** Version of Bokeh that made it. */
  bokeh: string;
  item: {
    readonly doc: Json;
    readonly root_id: string;
    readonly target_id?: string | null;
  };
  theme: { light: ThemePart; dark: ThemePart };
  /** Id of the ColumnDataSource by the source's name. */
  sources: Readonly<Record<string, string>>;
  /** Ids of the figure's parts that the browser arranges: "plot", "title", "x_range", … */
  parts?: Readonly<Record<string, string>>;
  /** Changes when updates no longer fit the figure, and it is to be fetched again. */
  structure: number;
}

/** Key and label of a text that is asked for when somebody wants to read it. */
export type Reading = readonly [string, string];

/** [offset in bytes, count] of float64 in the frame's buffer, or the values themselves. */
export type PackedColumn = readonly Json[];

export interface PackedView {
  structure: number;
  step: number;
  title: string;
  /** Sentences that stand below the figure. */
  facts?: readonly string[];
  /** Keys and labels of what can be read in full. */
  readings?: readonly Reading[];
  properties?: Readonly<Record<string, Readonly<Record<string, Json>>>>;
  sources?: Readonly<Record<string, Readonly<Record<string, PackedColumn>>>>;
}

export interface FrameHeader {
  type: 'frame';
  client?: string;
  sequence: number;
  state: SessionState;
  views: Readonly<Record<string, PackedView>>;
}

export interface Watch {
  session: string;
  views: readonly string[];
  step: 'newest' | number;
  hidden: boolean;
  /** Of the widest figure. */
  width_px: number;
  /** Of the narrowest figure of each view. */
  widths: Readonly<Record<string, number>>;
}

export const VIEWS = [
  'timeline',
  'steps',
  'construction',
  'plan',
  'countdown',
  'buffers',
  'finalize',
  'overlap',
  'forward_graph',
  'compile',
  'replicas'
] as const;
export type ViewName = (typeof VIEWS)[number];

export const VIEW_LABELS: Readonly<Record<ViewName, string>> = {
  timeline: 'Timeline',
  steps: 'Steps',
  construction: 'Construction',
  plan: 'Bucket Plan',
  countdown: 'Countdown',
  buffers: 'Buffers',
  finalize: 'Finalize',
  overlap: 'Overlap',
  forward_graph: 'Forward Graph',
  compile: 'Compile',
  replicas: 'Replicas'
};

export function isView(name: unknown): name is ViewName {
  return VIEWS.some(view => view === name);
}

export function viewLabel(name: string): string {
  return isView(name) ? VIEW_LABELS[name] : name;
}

/** First and last step that can be looked at, null while there is none. */
export function stepLimits(state: SessionState): [number, number] | null {
  const [first, last] = state.follow_steps ?? [];
  return first === undefined || last === undefined ? null : [first, last];
}
