// What the pages do beyond links and forms: the overview fetches its findings. Everything else, and the whole overview
// by another link, works without this script.
const memscope = (() => {
  "use strict";

  // Resolves the path without credentials: the page's own address can contain them (http://user:password@host), and
  // fetch refuses such URLs.
  const parsed = async (response) => new DOMParser().parseFromString(await response.text(), "text/html");
  const get = async (path, type) => {
    const response = await fetch(new URL(path, location.origin), { headers: { accept: type } });
    if (response.ok) return response;
    const words = (await parsed(response)).querySelector("main .lede")?.textContent.replace(/\.$/, "");
    throw new Error(words || "HTTP " + response.status);
  };
  const getPage = async (path) => parsed(await get(path, "text/html"));

  // Fills in the parts that take longer, from the same process as the page.
  const complete = async (main) => {
    const pending = document.getElementById("pending");
    try {
      const found = await getPage(main.dataset.rest);
      const [here, there] = [document, found].map((one) => one.getElementById("hero").dataset.pid);
      if (here !== there) throw new Error("process " + there + " answered instead of " + here + "; reload the page");
      ["processes", "hero", "ledger", "trend", "side", "foot"].forEach((id) => {
        const part = found.getElementById(id);
        if (part) document.getElementById(id)?.replaceWith(document.adoptNode(part));
      });
      if (location.hash) document.querySelector(location.hash)?.scrollIntoView();
    } catch (error) {
      pending.textContent = "No diagnosis: " + error.message + ".";
      document.getElementById("side").removeAttribute("aria-busy");
    }
  };

  // Browsers give the clipboard to pages from https and from this machine only.
  const copyable = () => {
    if (!navigator.clipboard) return;
    document.querySelectorAll("#findings pre").forEach((box) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copy";
      button.textContent = "Copy";
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(box.textContent);
        button.textContent = "Copied";
      });
      box.after(button);
    });
  };

  const main = document.getElementById("main");
  (main.dataset.rest ? complete(main) : Promise.resolve()).then(copyable);

  return { get };
})();
