# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/browser"
require_relative "../support/mcp_session"
require "json"
require "tmpdir"

# From a dump to an answer: in Chrome's DevTools, in memscope heap, and in the tools that read each format.
class DumpAcceptanceTest < MemscopeTest
  CARTS = 200
  # Each Cart has a String of 5,000 bytes; together they are what the cache retains, with the Hash itself.
  PROGRAM = <<~RUBY.freeze
    require "objspace"
    class Cart
      CACHE = {}
      def initialize = (@name = "x" * 5000)
    end
    #{CARTS}.times { |index| Cart::CACHE[index] = Cart.new }
    case ARGV.first
    when /objspace/ then ObjectSpace.dump_all(output: File.open(ARGV.first, "w"))
    when /snapshot/
      Memscope.dump(ARGV.first, format: :heapsnapshot, gc: true)
      puts Memscope.heap_graph(top: 1000).retained.find { |row| row.name == "Cart" }.to_json
    else Memscope.dump(ARGV.first, format: :objspace, gc: true)
    end
  RUBY
  NO_OBJECTS = %w[SHAPE ZOMBIE].freeze

  # @param more [String] what the program does after its dump
  def with_dump(name, more = "")
    Dir.mktmpdir("memscope") do |directory|
      path = "#{directory}/#{name}"
      made = ChildProcess.run("ARGV.replace [#{path.dump}]\n#{PROGRAM}#{more}", requires: ["memscope"])

      assert_predicate made, :success?, made
      yield path, made
    end
  end

  def memscope(*arguments)
    ChildProcess.run_command(*ChildProcess.ruby(gems: true), File.join(ChildProcess::ROOT, "exe/memscope"), *arguments)
  end

  def test_the_answers_of_a_dump_that_ruby_wrote
    with_dump("objspace.json") do |path|
      graph = Memscope::HeapGraph.read(path, paths_to: "Cart")
      carts = graph.retained.find { |row| row.name == "Cart" }
      truth = File.foreach(path).grep(/"address"/).map { |line| JSON.parse(line.scrub) }
      string = truth.select { |line| line["type"] == "STRING" && line["bytesize"] == 5000 }

      assert_equal [CARTS, path], [carts.count, graph.source]
      assert_equal carts.bytes + string.sum { |line| line["memsize"] }, carts.retained_bytes
      assert_equal %w[Cart Hash Cart], graph.paths.first.steps.last(3).map(&:name)
      assert_equal CARTS, graph.paths.first.count
      assert_equal truth.count { |line| !NO_OBJECTS.include?(line["type"]) },
                   graph.reachable_count + graph.garbage_count
      assert_equal graph, Memscope::HeapGraph.from_json(graph.to_json)
    end
  end

  NAMED = <<~RUBY
    class Order; end
    SECOND = [Order.new]
    class Shop
      @@lost = { 1 => Order.new }
      @kept = Struct.new(:order).new(Order.new)
    end
    captured = [Order.new]
    BLOCK = proc { captured }
    # heap
    Memscope.dump(ARGV.first, format: :objspace)
    puts Memscope.heap_graph(paths_to: "Order").paths.map(&:to_s)
  RUBY

  # Indexes and keys are left out.
  def test_the_paths_of_our_own_dump_are_named_as_in_the_process
    Dir.mktmpdir("memscope") do |directory|
      path = "#{directory}/heap.json"
      live = ChildProcess.run("ARGV.replace [#{path.dump}]\n#{NAMED}", requires: ["memscope"])
      [path, "#{directory}/again.json"].each do |file|
        Memscope::Dump.convert(path, file) unless File.exist?(file)
        read = Memscope::HeapGraph.read(file, paths_to: "Order")

        assert_equal live.out.gsub(/ (\{\w+\}|\[\d+\])/, "").lines(chomp: true).sort, read.paths.map(&:to_s).sort
        assert_includes read.paths.map(&:to_s), "SECOND → Array → Order"
        assert_match(/names constants and variables, but not global variables, indexes or keys/, read.reasons[:paths])
      end
    end
  end

  # A converted dump is read with the same numbers.
  def test_the_command_line
    with_dump("objspace.json") do |path|
      heap = memscope("heap", path, "--top", "3")
      converted = memscope("dump", "--from", path, "-o", "#{path}.heapsnapshot", "--json")

      assert_match(/Cart → Hash, holding 200 Cart/, heap.out)
      assert_match(/\Amemscope \S+ · dump #{path}$/, heap.out)
      refute_match(/pid|ruby \d/, heap.out + memscope("dump", "--from", path, "-o", "#{path}.pftrace").out)
      assert_equal "heapsnapshot", converted.json["format"]
      assert_equal 64, memscope("dump", "--from", path).status.exitstatus
      assert_equal 74, memscope("dump", "--from", path, "-o", "#{path}.heapsnapshot").status.exitstatus
      assert_equal 74, memscope("heap", __FILE__).status.exitstatus
      assert_match(/no dump was written: not in the documented form/,
                   memscope("dump", "--from", __FILE__, "-o", "#{path}.perfetto-trace").err)
    end
  end

  def test_a_dump_of_a_program
    Dir.mktmpdir("memscope") do |directory|
      path = "#{directory}/heap.json"
      script = "class Cart; end; $carts = Array.new(7) { Cart.new }"
      dumped = memscope("dump", "-o", path, "--", RbConfig.ruby, "-e", "#{script}; exit 3")

      assert_equal 3, dumped.status.exitstatus
      assert_match(/objects, .* references, .* without objects' contents/, dumped.err)
      assert_equal 7, Memscope::HeapGraph.read(path, top: 1000).retained.find { |row| row.name == "Cart" }.count
      assert_match(/File exists/, memscope("dump", "-o", path, "--", RbConfig.ruby, "-e", "").err)
    end
  end

  # Runs DevTools' own loader, which Chromium brings, in a page of its origin. A second worker computes retained sizes.
  LOAD = <<~JS
    (async () => {
      const worker = location.origin + "/devtools/entrypoints/heap_snapshot_worker/";
      const { HeapSnapshotLoader } = await import(worker + "heap_snapshot_worker.js");
      const loader = new HeapSnapshotLoader.HeapSnapshotLoader({ sendEvent() {} });
      window.parts.forEach((part) => loader.write(part));
      loader.close();
      const second = new Worker(worker + "heap_snapshot_worker-entrypoint.js", { type: "module" });
      await new Promise((ready) => { second.onmessage = ready; });
      const { port1, port2 } = new MessageChannel();
      second.postMessage({ disposition: "setupForSecondaryInit", objectId: 1, callId: 1 }, [port2]);
      const snapshot = await loader.buildSnapshot(port1);
      const classes = Object.values(snapshot.aggregatesWithFilter({}));
      return { total: snapshot.rootNode().retainedSize(),
               classes: classes.map((one) => [one.name, one.count, one.self, one.maxRet]) };
    })().then((found) => { window.found = found; }, (error) => { window.found = { error: error.stack }; }) && 1
  JS

  # @return [Hash] what DevTools know of the file
  def in_devtools(path)
    Browser.page do |page|
      page.go_to("#{Browser.devtools}/entrypoints/heap_snapshot_worker/heap_snapshot_worker-entrypoint.js")
      page.evaluate("window.parts = [], 1")
      File.read(path).chars.each_slice(1 << 18) do |part|
        page.evaluate("window.parts.push(#{JSON.generate(part.join)}), 1")
      end
      page.evaluate(LOAD)
      JSON.parse(page.until_found("snapshot") { page.evaluate("JSON.stringify(window.found)") })
    end
  end

  def test_devtools_load_a_heapsnapshot
    skip ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE
    with_dump("heap.snapshot") do |path|
      found = in_devtools(path)
      flunk found["error"] if found["error"]
      nodes = JSON.parse(File.read(path))["nodes"].each_slice(7).to_a
      _name, count, own, retained = found["classes"].find { |name, *| name == "Cart" }

      assert_equal nodes.sum { |node| node[3] }, found["total"]
      assert_equal CARTS, count
      assert_includes (CARTS * 5000)..(CARTS * 5200), retained - own
    end
  end

  # A directory with the tools that read each format, as gems and node_modules, as far as the registries have them. Set
  # by rake battery:dumps.
  TOOLS = ENV.fetch("MEMSCOPE_DUMP_TOOLS", nil)

  def tool(*command, path)
    skip "only in rake battery:dumps" unless TOOLS

    gems = { "GEM_HOME" => "#{TOOLS}/gems", "GEM_PATH" => "#{TOOLS}/gems", "NODE_PATH" => "#{TOOLS}/node_modules" }
    result = ChildProcess.run_command(*command, path, env: gems)

    assert_predicate result, :success?, result
    result
  end

  def test_heap_profiler_reads_the_lines
    with_dump("heap.json") do |path|
      assert_match(/^ +8\.00 kB  Cart$/, tool(RbConfig.ruby, "#{TOOLS}/gems/bin/heap-profiler", path).out)
    end
  end

  def test_heapy_reads_the_lines
    with_dump("heap.json") do |path|
      objects = File.foreach(path).grep(/"address"/).size
      said = tool(RbConfig.ruby, "#{TOOLS}/gems/bin/heapy", "read", path).out[/object count: (\d+)/, 1].to_i

      assert_includes objects..(objects + 10), said # heapy counts lines of roots too
    end
  end

  def test_sheap_finds_a_path
    skip "sheap is for Ruby 3.2 and newer" if RUBY_VERSION < "3.2"
    with_dump("heap.json") do |path|
      script = <<~RUBY
        require "sheap"
        heap = Sheap::Heap.new(ARGV.first)
        cart = heap.objects.find { |object| object.data["name"] == "Cart" }
        of_class = heap.objects.select { |object| object.data["class"] == cart.data["address"] }
        puts of_class.size, heap.find_path(of_class.first).map(&:inspect)
      RUBY
      count, *steps = tool(RbConfig.ruby, "-e", script, path).out.lines(chomp: true)

      assert_equal CARTS, count.to_i
      assert_match(/CLASS \S+ Cart/, steps[-3])
    end
  end

  # memlab computes its own dominators. The script prints progress first, on the same stream.
  def test_memlab_reads_a_heapsnapshot
    with_dump("heap.snapshot") do |path|
      script = <<~JS
        const { getFullHeapFromFile } = require("@memlab/heap-analysis");
        getFullHeapFromFile(process.argv.at(-1)).then((heap) => {
          const carts = [];
          heap.nodes.forEach((node) => { if (node.name === "Cart") carts.push(node); });
          const cache = carts[0].dominatorNode;
          console.log("\\n" + JSON.stringify([heap.nodes.length, carts.length, carts[0].retainedSize,
                                             cache.name, cache.retainedSize - cache.self_size]));
        });
      JS
      nodes, count, retained, *cache = JSON.parse(tool("node", "-e", script, path).out.lines.last)

      assert_equal JSON.parse(File.read(path)).dig("snapshot", "node_count"), nodes
      assert_equal CARTS, count
      assert_includes 5000..5200, retained
      assert_equal ["Hash", CARTS * retained], cache
    end
  end

  # @yieldparam ask [Proc] the text of a tool's answer. The server runs on the Node that is installed with it: it needs
  #   Node 22, whatever its package says
  def chrome_devtools_mcp
    skip "only in rake battery:dumps" unless TOOLS

    node, server = %w[node chrome-devtools-mcp].map { |name| "#{TOOLS}/node_modules/.bin/#{name}" }
    options = %w[--memoryDebugging --no-usage-statistics --headless --isolated] << "--executablePath=#{Browser.program}"
    options << "--chromeArg=--no-sandbox" if Process.uid.zero?
    McpSession.with(node, server, *options) do |tools|
      yield ->(name, **given) { tools.ask(name, **given).text.tr("\u00a0", " ") }
    end
  end

  # Asks as an assistant does. A dump counts blocks as glibc keeps them, up to 15 bytes larger than in a heap graph.
  def test_chrome_devtools_mcp_answers_from_a_heapsnapshot
    chrome_devtools_mcp do |ask|
      with_dump("heap.heapsnapshot") do |path, made|
        cart = Memscope::HeapGraph::ClassRow.from_h(made.json)
        count, kilobytes = ask.call("get_heapsnapshot_details", filePath: path, pageSize: 5000)
                              .match(/^\d+,Cart,(\d+),8\.0 kB,([\d,]+) kB$/).captures
        node = ask.call("query_heapsnapshot_objects", filePath: path, className: "^Cart$")[/^(\d+),Cart,/, 1].to_i

        assert_equal [cart.count, CARTS], [count.to_i, CARTS]
        assert_in_delta cart.retained_bytes + (15 * CARTS), 1000 * kilobytes.delete(",").to_i, 500
        assert_match(/^\d+,Hash,.*1,0\d\d kB$/, ask.call("get_heapsnapshot_dominators", filePath: path, nodeId: node))
        assert_match(/Hash via property .*\n.* Class<Cart> via property CACHE/,
                     ask.call("get_heapsnapshot_retaining_paths", filePath: path, nodeId: node))
      end
    end
  end

  MORE = <<~'RUBY'
    50.times { |index| Cart::CACHE[-index - 1] = Cart.new }
    Memscope.dump("#{ARGV.first}.later.heapsnapshot", format: :heapsnapshot, gc: true)
  RUBY

  # The objects of both dumps have the same ids.
  def test_chrome_devtools_mcp_compares_two_heapsnapshots
    chrome_devtools_mcp do |ask|
      with_dump("heap.heapsnapshot", MORE) do |path, _made|
        later = "#{path}.later.heapsnapshot"
        compared = ask.call("compare_heapsnapshots", baseFilePath: path, currentFilePath: later)

        assert_match(/^\d+,Cart,50,0,50,2\.0 kB,0\.0 kB,2\.0 kB$/, compared)
      end
    end
  end

  # The parser of VS Code's viewer, compiled from Rust, rejects unknown fields.
  def test_vs_codes_parser_reads_a_heapsnapshot
    with_dump("heap.snapshot") do |path|
      script = <<~JS
        const parser = require("@vscode/v8-heap-parser");
        const graph = parser.decode_bytes(require("fs").readFileSync(process.argv.at(-1)));
        const groups = graph.get_class_groups(0, 100000, false);
        const cart = groups.find((group) => group.name() === "Cart");
        console.log(JSON.stringify([cart.children_len, Number(cart.self_size), Number(cart.retained_size)]));
      JS
      count, own, retained = tool("node", "-e", script, path).json

      assert_equal CARTS, count
      assert_includes (CARTS * 5000)..(CARTS * 5200), retained - own
    end
  end
end
