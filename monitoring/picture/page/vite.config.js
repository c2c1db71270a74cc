import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

// One classic script beside the page: a page that is opened from a file may not load modules.
export default defineConfig({
  plugins: [react()],
  base: './',
  define: { 'process.env.NODE_ENV': '"production"' },
  build: {
    assetsInlineLimit: 1_000_000,
    chunkSizeWarningLimit: 10_000,
    rollupOptions: {
      input: 'src/main.jsx',
      output: { format: 'iife', inlineDynamicImports: true, entryFileNames: 'page.js', assetFileNames: 'page[extname]' },
    },
  },
});
