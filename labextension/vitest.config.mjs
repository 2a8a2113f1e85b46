import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    environment: 'jsdom',
    include: ['tests/**/*.test.ts'],
    // The style is text for the bundle; unit tests need none of it.
    css: false,
    // One page for all files: making one takes longer than all tests.
    fileParallelism: false,
    isolate: false
  }
});
