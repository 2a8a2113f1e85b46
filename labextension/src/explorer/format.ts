/** Numbers with the digits they deserve, and their unit. */

export function number(value: number): string {
  const size = Math.abs(value);
  if (!Number.isFinite(value)) {
    return '–';
  }
  if (size >= 100 || value === 0) {
    return Math.round(value).toLocaleString('en-US');
  }
  return String(Number(value.toPrecision(size >= 10 ? 3 : 2)));
}

export function share(value: number): string {
  const percent = 100 * value;
  return `${percent > 0 && percent < 1 ? '< 1' : String(Math.round(percent))} %`;
}

export function age(seconds: number): string {
  if (seconds < 90) {
    return `${String(Math.round(seconds))} s`;
  }
  if (seconds < 90 * 60) {
    return `${String(Math.round(seconds / 60))} min`;
  }
  if (seconds < 36 * 3600) {
    return `${String(Math.round(seconds / 3600))} h`;
  }
  return `${String(Math.round(seconds / 86400))} days`;
}

export function plural(count: number, word: string): string {
  return `${String(count)} ${word}${count === 1 ? '' : 's'}`;
}
