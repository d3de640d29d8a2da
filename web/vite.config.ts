/** How the page is built: into the gateway's package, with hashed names, no source maps, the same bytes each time. */
import { defineConfig } from "vitest/config";

export default defineConfig({
  base: "/",
  publicDir: "public", // the manifest and its icons, whose names must stay
  build: {
    outDir: "../src/tertulia/gateway/pages",
    emptyOutDir: true,
    target: "es2022",
    cssTarget: ["chrome123", "firefox120", "safari17.5"], // these know light-dark()
    sourcemap: false,
    assetsInlineLimit: 0, // data: scripts and styles are not allowed by the page's policy
    modulePreload: { polyfill: false }, // the polyfill would be a second fetch of each script
    cssCodeSplit: false,
    license: { fileName: "licences.txt" }, // whose work is in the bundle, and under which terms
  },
  test: { include: ["tests/**/*.test.ts"], environment: "node" },
});
