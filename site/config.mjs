// VitePress's configuration. rakelib/site.rb writes site.json, from navigation.yml, and says where the pages will be.
import { readFileSync } from "node:fs";
import { defineConfig } from "vitepress";

const { base, outDir, sidebar, hostname, descriptions } = JSON.parse(readFileSync(new URL("site.json", import.meta.url), "utf8"));

// A browser then loads nothing from elsewhere, whatever a page or a later version of VitePress says.
const POLICY = "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; " +
  "img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'";

// As GitHub names headings, so that a link leads to the same place here and there.
const slugify = (text) => text.trim().toLowerCase().replace(/[^\p{L}\p{M}\p{N}_\- ]/gu, "").replaceAll(" ", "-");

export default defineConfig({
  title: "memscope",
  titleTemplate: ":title · memscope for Ruby",
  description: "Where every resident byte of a Ruby process is",
  lang: "en",
  base,
  outDir,
  rewrites: { "README.md": "index.md" },
  sitemap: hostname ? { hostname } : undefined,
  transformPageData(page) {
    page.description = descriptions[page.filePath];
    if (page.filePath === "README.md")
      Object.assign(page, { title: "memscope for Ruby: why the memory of a process grows", titleTemplate: false });
  },
  head: [
    ["meta", { "http-equiv": "Content-Security-Policy", content: POLICY }],
    ["meta", { name: "referrer", content: "no-referrer" }],
    ["link", { rel: "icon", href: "data:," }],
  ],
  markdown: {
    anchor: { slugify },
    languageAlias: { alloy: "hcl" },
    theme: { light: "github-light-high-contrast", dark: "github-dark-high-contrast" },
  },
  themeConfig: {
    sidebar,
    outline: [2, 3],
    search: { provider: "local" },
  },
});
