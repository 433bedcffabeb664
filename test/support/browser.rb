# frozen_string_literal: true

# Debian's Chromium, one for all tests, started when it is first needed. Each page records the browser's complaints and
# every request.
module Browser
  # Seconds within which it starts, answers, and shows an awaited element, on a loaded machine.
  PATIENCE = 60
  PROGRAMS = %w[chromium chromium-browser google-chrome].freeze
  # Evaluated in a page: all text whose contrast with its background is less than 4.5 to 1.
  CONTRAST = <<~'JS'
    (() => {
      const numbers = (text) => text.match(/[\d.]+/g).map(Number);
      const light = (rgb) => rgb.slice(0, 3).map((value) => value / 255)
        .map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
        .reduce((sum, value, index) => sum + value * [0.2126, 0.7152, 0.0722][index], 0);
      const behind = (element) => {
        for (let one = element; one; one = one.parentElement) {
          const colour = numbers(getComputedStyle(one).backgroundColor);
          if (colour.length < 4 || colour[3] > 0) return colour;
        }
        return [255, 255, 255];
      };
      const marks = [...document.querySelectorAll("svg .mark")].map((mark) => {
        const rects = [...mark.parentElement.querySelectorAll("rect.segment")];
        const place = mark.getBoundingClientRect();
        const rect = rects.find((one) => one.getBoundingClientRect().right > place.left + 1);
        return [mark, numbers(getComputedStyle(mark).fill), numbers(getComputedStyle(rect).fill)];
      });
      const texts = [...document.querySelectorAll("body *")].filter((element) =>
        !element.closest("svg") && element.checkVisibility() &&
        [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())
      ).map((element) => [element, numbers(getComputedStyle(element).color), behind(element)]);
      return [...texts, ...marks].map(([element, front, back]) => {
        const [least, most] = [light(front), light(back)].sort((a, b) => a - b);
        return [(most + 0.05) / (least + 0.05), element.outerHTML.slice(0, 80)];
      }).filter(([contrast]) => contrast < 4.5);
    })()
  JS

  # Evaluated in a page: elements without an accessible name, and other faults of structure.
  STRUCTURE = <<~JS
    (() => {
      const faults = [];
      const fault = (text, found) => found.forEach((one) => faults.push(text + ": " + one.outerHTML.slice(0, 80)));
      const all = (selector) => [...document.querySelectorAll(selector)];
      const words = (id) => document.getElementById(id)?.textContent.trim();
      const named = (one) => one.ariaLabel || one.textContent.trim() || one.labels?.length ||
        (one.getAttribute("aria-labelledby") || "").split(" ").some(words);
      fault("without a name", all("a, button, input:not([type=hidden]), select, summary, [role], nav, section")
        .filter((one) => !one.matches("section:not([aria-labelledby])") && !named(one)));
      fault("a drawing that is neither named nor hidden",
        all("svg").filter((one) => !one.closest("[aria-hidden=true]") &&
          !["img", "group"].includes(one.getAttribute("role"))));
      fault("a heading of a cell without a scope", all("th:not([scope])"));
      fault("a region that scrolls and cannot be focused", all("pre, .scroll").filter((one) => one.tabIndex !== 0));
      const ids = all("[id]").map((one) => one.id);
      ids.filter((id, index) => ids.indexOf(id) !== index).forEach((id) => faults.push("an id twice: " + id));
      all("[aria-labelledby], [aria-describedby]").forEach((one) =>
        [one.getAttribute("aria-labelledby"), one.getAttribute("aria-describedby")].join(" ").split(" ")
          .filter((id) => id && !document.getElementById(id)).forEach((id) => faults.push("no such id: " + id)));
      const levels = all("h1, h2, h3, h4").map((one) => Number(one.tagName[1]));
      if (levels.filter((level) => level === 1).length !== 1) faults.push("headings of level 1: not one");
      levels.forEach((level, index) => {
        if (level > (levels[index - 1] || 0) + 1) faults.push("a heading too deep: " + levels.slice(0, index + 1));
      });
      if (!document.documentElement.lang) faults.push("no language");
      if (!document.title) faults.push("no title");
      if (all("main").length !== 1) faults.push("not one main");
      return faults;
    })()
  JS

  class << self
    def page(width: 1280, height: 900, scheme: "light")
      page = Page.new(browser.create_page, width, height, scheme)
      yield page
    ensure
      page&.close
    end

    # @return [String] where the browser serves its own DevTools
    def devtools = "http://127.0.0.1:#{browser.process.port}/devtools"

    # @return [String] Chromium's path
    def program
      @program ||= PROGRAMS.product(ENV.fetch("PATH").split(":")).map { |name, directory| File.join(directory, name) }
                           .find { |path| File.executable?(path) }
      raise Minitest::Assertion, "no Chromium, which CI must have" if @program.nil? && ENV["CI"]

      @program or raise Minitest::Skip, "no Chromium: bin/packages chromium"
    end

    private

    def browser
      @browser ||= start.tap { |browser| Minitest.after_run { browser.quit } }
    end

    def start
      path = program
      require "ferrum"
      options = { "host-resolver-rules" => "MAP evil.test 127.0.0.1" }
      options["no-sandbox"] = nil if Process.uid.zero?
      Ferrum::Browser.new(browser_path: path, process_timeout: PATIENCE, timeout: PATIENCE, browser_options: options)
    end
  end

  # One page of the browser.
  class Page
    # @return [Array<String>] console messages, errors, violations of the policy
    attr_reader :complaints

    def initialize(page, width, height, scheme)
      @page = page
      @complaints = []
      listen
      look(width: width, height: height, scheme: scheme)
    end

    # Shows the page as on another device.
    def look(width:, height:, scheme: "light")
      @page.command("Emulation.setEmulatedMedia", features: [{ name: "prefers-color-scheme", value: scheme }])
      @page.set_viewport(width: width, height: height)
    end

    def go_to(url) = @page.go_to(url)

    def evaluate(script) = @page.evaluate(script)

    def text(selector) = evaluate("document.querySelector(#{JSON.generate(selector)})?.innerText")

    def click(selector) = leaving { push(selector) }

    # Clicks, without waiting for anything.
    def push(selector) = @page.at_css(selector).scroll_into_view.click

    # Types a key into the element that has the focus.
    def press(key) = @page.keyboard.type(key)

    # Waits until the block has led to another page.
    def leaving
      before = @page.current_url
      yield
      until_found("another page than #{before}") do
        evaluate("document.readyState") == "complete" && @page.current_url != before
      end
    end

    def until_found(what)
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + PATIENCE
      until (found = yield)
        raise Minitest::Assertion, "no #{what}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline

        sleep 0.02
      end
      found
    end

    def without_script = @page.command("Emulation.setScriptExecutionDisabled", value: true)

    # @return [Array<String>] the URLs of all requests
    def urls = @page.network.traffic.map(&:url)

    # @param directory [String] where files are saved that the page offers for download
    def save_into(directory) = @page.downloads.set_behavior(save_path: directory)

    def screenshot(path) = @page.screenshot(path: path)

    def close = @page.close

    private

    # Issues are reported only to listeners that exist when auditing begins.
    def listen
      @page.on("Log.entryAdded") { |event| @complaints << event["entry"].slice("source", "text").values.join(": ") }
      @page.on("Audits.issueAdded") { |event| @complaints << event["issue"]["code"] }
      @page.on("Runtime.consoleAPICalled") { |event| @complaints << "console.#{event['type']}" }
      @page.on("Runtime.exceptionThrown") { |event| @complaints << event["exceptionDetails"].to_s }
      %w[Log Runtime Audits].each { |domain| @page.command("#{domain}.enable") }
    end
  end
end
