import { useData, withBase } from "vitepress";
import Theme from "vitepress/theme-without-fonts";
import { h } from "vue";
import "./style.css";

// A target keeps VitePress from taking the link for one to a page.
const AsMarkdown = {
  setup() {
    const { page } = useData();
    const file = () => withBase(`/${page.value.filePath}`);
    return () => h("a", { class: "as-markdown", href: file(), target: "_self" }, "This page as Markdown");
  },
};

export default {
  extends: Theme,
  Layout: () => h(Theme.Layout, null, { "doc-footer-before": () => h(AsMarkdown) }),
};
