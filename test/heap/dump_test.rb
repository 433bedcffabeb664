# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/dumps"
require "objspace"
require "tmpdir"

# What dumps are made of, in each format, against what Ruby's own dump says.
class DumpTest < MemscopeTest
  parallelize_me!

  Dump = Memscope::Dump

  # Run by a child, so that its dump is small.
  OBJECTS = <<~RUBY
    require "objspace"
    class Order
      HANDLERS = [proc {}]
      def initialize(text) = (@lines = [text, text * 100, { text => :x }])
    end
    $orders = Array.new(100) { |index| Order.new("order \#{index}") }
    def ($orders.first).single = 1
    $anonymous = Class.new(Order).new("x")
    GC.start
    ObjectSpace.dump_all(output: File.open(ARGV.first, "w"))
  RUBY

  def setup
    skip "this Ruby has no extension for google-protobuf" if ChildProcess::WITHOUT_BUNDLE

    require_relative "../support/heap_graph_proto"
  end

  def in_directory(&) = Dir.mktmpdir("memscope", &)

  # Yields Ruby's own dump of the objects above, as others' parsers see it, and a path beside it.
  def with_dump(name)
    in_directory do |directory|
      lines = "#{directory}/heap.json"
      ruby = ChildProcess.run_command(RbConfig.ruby, "--disable-gems", "-e", OBJECTS, lines)

      assert_predicate ruby, :success?
      yield lines, Dumps.of_lines(lines), "#{directory}/#{name}"
    end
  end

  def assert_same_objects(expected, objects)
    assert_equal expected.objects.keys.sort, objects.keys.sort
    expected.objects.each do |number, entry|
      assert_equal entry.references, objects[number].references, entry
      assert_equal entry.bytes, objects[number].bytes
      assert_equal entry.label, objects[number].label if entry.label && !entry.label.start_with?("Singleton")
    end
  end

  def test_perfetto_has_the_graph_of_rubys_own_dump
    with_dump("heap.pftrace") do |lines, expected, path|
      dump = Dump.convert(lines, path)
      graph = Dumps.of_trace(path)

      assert_same_objects expected, graph.objects
      assert_equal expected.objects.size, dump.objects
      assert_equal expected.objects.values.sum { |entry| entry.references.size }, dump.references
      assert_equal expected.roots.values.map(&:sort).sort, graph.roots.values.map(&:sort).sort
      assert_equal({ "Order" => 100, "Order (anonymous subclass)" => 1 },
                   graph.objects.values.map(&:label).grep(/\AOrder/).tally)
    end
  end

  def test_perfettos_rules
    with_dump("heap.pftrace") do |lines, _expected, path|
      Dump.convert(lines, path)
      packets = HeapGraphProto::Trace.decode(File.binread(path)).packet
      parts = packets.filter_map(&:heap_graph)

      assert_equal 1, packets.map { |packet| [packet.timestamp, packet.trusted_packet_sequence_id] }.uniq.size
      process = packets.first.process_tree.processes.first

      assert_equal [1, ["ruby (converted: pid not known)"]], [process.pid, process.cmdline.to_a]
      assert_equal [*0...parts.size], parts.map(&:index)
      assert_equal [*([true] * (parts.size - 1)), false], parts.map(&:continued)
    end
  end

  # Kind 4 is "array": such a type needs no list of its fields.
  def test_perfettos_rules_for_references
    with_dump("heap.pftrace") do |lines, _expected, path|
      Dump.convert(lines, path)
      parts = HeapGraphProto::Trace.decode(File.binread(path)).packet.filter_map(&:heap_graph)

      assert_empty(parts.flat_map { |part| part.field_names.map(&:str) }.grep(/\s|\A\z/))
      assert_equal [4], parts.flat_map { |part| part.types.map(&:kind) }.uniq
      parts.flat_map { |part| part.objects.to_a }.each do |object|
        assert_equal object.reference_field_id.size, object.reference_object_id.size
      end
    end
  end

  def test_a_heapsnapshot_has_the_graph_of_rubys_own_dump
    with_dump("heap.heapsnapshot") do |lines, expected, path|
      dump = Dump.convert(lines, path)
      graph = Dumps.of_snapshot(path)

      assert_equal :heapsnapshot, dump.format
      assert_same_objects expected, graph.objects
      expected.roots.each { |category, numbers| assert_equal numbers, graph.roots["(#{category} roots)"] }
      assert_equal File.size(path), dump.bytes
    end
  end

  # DevTools want each node to be reachable from the root, even garbage.
  def test_a_heapsnapshots_garbage_has_a_root
    with_dump("heap.heapsnapshot") do |lines, expected, path|
      Dump.convert(lines, path)
      reached = expected.roots.values.reduce(:|)
      frontier = reached
      frontier = frontier.flat_map { |number| expected.objects[number].references.to_a }.to_set - reached and
        reached |= frontier until frontier.empty?

      assert_equal expected.objects.keys.to_set - reached, Dumps.of_snapshot(path).roots.fetch("(garbage)", Set[])
    end
  end

  def test_lines_of_objspace_have_the_graph_and_are_read_again
    with_dump("again.json") do |lines, expected, path|
      Dump.convert(lines, path)

      assert_same_objects expected, Dumps.of_lines(path).objects
      assert_equal expected.roots, Dumps.of_lines(path).roots
      Dump.convert(path, "#{path}.json")

      assert_equal File.read(path), File.read("#{path}.json")
    end
  end

  def test_a_dump_that_was_cut
    with_dump("cut.pftrace") do |lines, expected, path|
      File.truncate(lines, File.size(lines) - 20)
      dump = Dump.convert(lines, path)

      assert_equal expected.objects.size - 1, dump.objects
      assert_match(/incomplete/, dump.reasons[:objects])
    end
  end

  def test_a_dump_that_was_cut_between_two_lines
    with_dump("cut.pftrace") do |lines, expected, path|
      assert_equal [:names], Dump.convert(lines, path).reasons.keys
      assert_equal %i[names paths], Memscope::HeapGraph.read(lines).reasons.keys.sort - [:reachable_slot_bytes]
      File.write(lines, File.readlines(lines).first(expected.objects.size / 2).join)
      reasons = Memscope::HeapGraph.read(lines).reasons

      dump = Dump.convert(lines, "#{path}.pftrace")

      assert_match(/\A[\d,]+ references lead to objects that are not in the dump/, dump.reasons[:objects])
      %i[reachable_count garbage_count retained].each { |key| assert_match(/not in the dump/, reasons[key]) }
    end
  end

  def graph_of(*lines)
    in_directory do |directory|
      File.write("#{directory}/heap.json", lines.map { |line| JSON.generate(line) }.join("\n"))
      Memscope::HeapGraph.read("#{directory}/heap.json")
    end
  end

  def test_references_of_roots_are_not_between_objects
    graph = graph_of({ type: "ROOT", root: "vm", references: %w[0x40 0x80] },
                     { address: "0x40", type: "ARRAY", references: ["0x80"], memsize: 40 },
                     { address: "0x80", type: "STRING", memsize: 40 })

    assert_equal 1, graph.reference_count
    assert_equal 2, graph.roots.first.count
  end

  # As in dumps of Ruby before 3.2.
  def test_a_dump_without_the_sizes_of_slots
    root = { type: "ROOT", root: "vm", references: ["0x40"] }
    string = { address: "0x40", type: "STRING", memsize: 60 }
    unknown, known = [string, { **string, slot_size: 40 }].map { |line| graph_of(root, line) }

    assert_equal [nil, nil, 0], [unknown.reachable_slot_bytes, unknown.retained.first.slot_bytes,
                                 unknown.garbage_slot_bytes]
    assert_match(/does not state the sizes of slots/, unknown.reasons[:reachable_slot_bytes])
    assert_equal [40, 40, nil], [known.reachable_slot_bytes, known.retained.first.slot_bytes,
                                 known.reasons[:reachable_slot_bytes]]
  end

  # Objects that are too far apart are numbered in the order of the dump: another object may have the same number in
  # another dump.
  def test_numbers_that_do_not_last
    in_directory do |directory|
      said, paths = [%w[A B C D], %w[A B C]].map.with_index do |names, number|
        lines = "#{directory}/#{number}"
        objects = names.map.with_index { |name, at| [0x80 + (40 * at), %("CLASS", "name":"#{name}")] }
        objects.unshift([0x40, '"CLASS", "name":"BasicObject"']).push([0x80 + (64 << 30), '"STRING"'])
        File.write(lines, objects.map { |at, type| %({"address":"0x#{at.to_s(16)}", "type":#{type}}) }.join("\n"))
        [Dump.convert(lines, "#{lines}.json").reasons[:numbers], "#{lines}.json"]
      end.transpose

      said.each { |reason| assert_match(/more than 32 GiB apart/, reason) }
      assert_match(/at other addresses/, Memscope::HeapGraph.growth(*paths).reasons[:new_count])
    end
  end

  def test_an_object_of_more_than_4_gib
    in_directory do |directory|
      File.write("#{directory}/heap.json", <<~JSON)
        {"type":"ROOT", "root":"vm", "references":["0x8"]}
        {"address":"0x8", "type":"STRING", "memsize":#{5 << 30}}
      JSON
      graph = Memscope::HeapGraph.read("#{directory}/heap.json")

      assert_equal (4 << 30) - 1, graph.reachable_bytes
      assert_match(/a lower bound .* 4 GiB \(1 objects\)/, graph.reasons[:reachable_bytes])
    end
  end

  # As on a file system that is full, or whose quota is used up.
  def test_a_file_that_cannot_be_closed_leaves_nothing
    with_dump("heap.pftrace") do |lines, _expected, path|
      failure = child_json(<<~RUBY, requires: %w[json])
        File.prepend(Module.new { def close = super.tap { raise Errno::EDQUOT if path.end_with?(".pftrace") } })
        puts JSON.generate([(Memscope::Dump.convert(#{lines.dump}, #{path.dump}) rescue $!.class.name)])
      RUBY

      assert_equal ["Errno::EDQUOT"], failure
      refute_path_exists path
    end
  end

  # Names of formats are added to those of the dump.
  def test_a_dump_of_many_classes
    in_directory do |directory|
      lines = (1..5000).map do |number|
        %({"address":"0x#{(8 * number).to_s(16)}", "type":"CLASS", "class":"0x8", "name":"Shop::Class#{number}"}\n)
      end
      File.write("#{directory}/heap.json", lines.join)

      assert_equal 5000, Dump.convert("#{directory}/heap.json", "#{directory}/heap.pftrace").objects
      assert_equal 5000, Dump.convert("#{directory}/heap.json", "#{directory}/heap.heapsnapshot").objects
    end
  end

  def test_what_cannot_be_converted
    in_directory do |directory|
      path = "#{directory}/heap.pftrace"
      error = assert_raises(Dump::Failed) { Dump.convert(__FILE__, path) }
      assert_match(/no dump was written: not in the documented form/, error.message)
      assert_raises(Errno::ENOENT) { Dump.convert("#{directory}/none", path) }
      assert_raises(Dump::Failed) { Dump.convert(directory, path) }
      assert_match(/format: given nil, allowed: :perfetto/,
                   assert_raises(ArgumentError) { Dump.convert(__FILE__, "#{directory}/heap") }.message)
      assert_empty Dir.children(directory)
    end
  end

  # Of a live process: --------------------------------------------------------------------------------------------

  PLANTED = <<~RUBY
    class Cart
      CACHE = {}
      @@all = CACHE
      def initialize = (@items = [Item.new, nil, self])
    end
    Item = Struct.new(:price)
    CACHE_KEY = "key"
    Cart::CACHE[CACHE_KEY] = Cart.new
    Cart::CACHE[:cart].frozen?
    captured = Cart.new
    $block = proc { captured }
    $path = ARGV.first
  RUBY

  # Follows names from an object, and returns the label of the last.
  def follow(graph, from, *names)
    number = names.reduce(graph.objects.key(from)) do |at, name|
      graph.objects.fetch(at).names.fetch(name) { |missing| flunk "no #{missing} in #{graph.objects[at]}" }
    end
    graph.objects.fetch(number).label
  end

  def live_dump(directory, name, script = "", **options)
    path = "#{directory}/#{name}"
    result = ChildProcess.run("ARGV.replace [#{path.dump}]\n#{PLANTED}\n#{script}\n" \
                              "puts Memscope.dump(*ARGV, format: :#{Dump.format_of(path)}).to_json",
                              requires: ["memscope"], **options)
    [path, result.json]
  end

  def assert_process_of(path, pid)
    packets = HeapGraphProto::Trace.decode(File.binread(path)).packet
    process = packets.first.process_tree.processes.first

    assert_equal [pid, ["ruby"]], [process.pid, process.cmdline.to_a]
    assert_equal [pid], packets.filter_map(&:heap_graph).map(&:pid).uniq
  end

  both_allocators "names of edges", in_full: [:jemalloc] do |preload|
    in_directory do |directory|
      path, said = live_dump(directory, "heap.pftrace", preload: preload)
      graph = Dumps.of_trace(path)
      cart = graph.objects.values.find { |entry| entry.label == "Class<Cart>" }

      assert_equal "Hash", follow(graph, cart, "CACHE")
      assert_equal "Cart", follow(graph, cart, "CACHE", "[key:String]")
      assert_includes %w[Item Cart], follow(graph, cart, "CACHE", "[key:String]", "@items", "[]")
      assert_equal "Class<Cart>", follow(graph, cart, "CACHE", "[key:String]", "<class>")
      assert_equal [graph.objects.size, File.size(path), "perfetto", true],
                   said.values_at("objects", "bytes", "format", "redacted")
      assert_operator said["pause_ms"], :>, 0
      assert_operator said["pause_ms"] * 1000, :<=, said["cost"]["gvl_us"] + 1
      assert_process_of path, said["pid"]
    end
  end

  def test_a_heapsnapshot_of_this_process
    in_directory do |directory|
      path, said = live_dump(directory, "heap.heapsnapshot")
      graph = Dumps.of_snapshot(path)
      cart = graph.objects.values.find { |entry| entry.label == "Class<Cart>" }

      assert_equal "Item", follow(graph, cart, "CACHE", "[key: String]", "@items", 0)
      assert_equal "Cart", follow(graph, cart, "CACHE", "[key: String]", "@items", 2)
      assert_equal said["objects"], graph.objects.size
    end
  end

  # Two dumps of one process: what stays has the same number.
  def test_numbers_last
    in_directory do |directory|
      path, = live_dump(directory, "second.json", <<~RUBY)
        Memscope.dump(ARGV.first + ".first.json", format: :objspace, gc: true)
        $more = Array.new(10_000) { Object.new }
      RUBY
      first, second = ["#{path}.first.json", path].map { |each| Dumps.of_lines(each).objects }
      labels = first.select { |_number, entry| entry.label&.match?(/Class<[A-Z]/) }

      assert_operator labels.size, :>, 300
      labels.each { |number, entry| assert_equal entry.label, second.fetch(number).label }
    end
  end

  CANARIES = <<~RUBY
    ENV["CANARY_VARIABLE"] = "canary in env"
    $canaries = ["canary string", :"canary symbol", "canary dynamic".to_sym, { "canary key" => 1, canary_name: 2 },
                 (2**70) + 271_828_182_845_904_523, 1.6180339887498948e-200, File.new("/etc/hostname"),
                 /canary regexp/, "canary" * 1000, Struct.new(:canary_free).new("canary in a struct"),
                 Thread.new { sleep }.tap { |thread| thread.name = "canary thread" },
                 eval("proc { 1 }", binding, "/canary/file.rb", 987_654_321)]
    $PROGRAM_NAME = "canary program"
    def canary_caller = yield
  RUBY

  def test_no_contents
    in_directory do |directory|
      %w[heap.pftrace heap.heapsnapshot heap.json].each do |name|
        path, said = live_dump(directory, name, CANARIES)
        bytes = File.binread(path)
        found = bytes.scan(/.{0,20}canary.{0,20}/i).grep_v(/canaries|canary_caller|canary_free/)

        assert_empty found
        assert_match(/names of classes, constants and variables are shown/, said.fetch("reasons")["names"])
        ["/etc/hostname", "hostname", ((2**70) + 271_828_182_845_904_523).to_s, "618033988749", "987654321", directory]
          .each { |text| refute_includes bytes, text }
      end
    end
  end

  # Names made at run time look like code to memscope, and the reading says so.
  def test_names_made_from_data_are_shown_with_a_reason
    names = ChildProcess.run(<<~RUBY, requires: %w[memscope json]).json
      class Holder; end
      Holder.const_set("CANARYCONST", [Holder.new, "canary content"])
      Holder.instance_variable_set("@canary_ivar", [Object.new])
      readings = [Memscope.heap_graph(paths_to: Holder), Memscope.census]
      readings.each { |reading| reading.to_s }
      puts JSON.generate(readings.map { |reading| [reading.reasons[:names], reading.to_json] })
    RUBY

    names.each do |reason, json|
      assert_match(/are shown, and reveal data/, reason)
      refute_includes json, "canary content"
    end
    assert_includes names.first.last.scan(/CANARY\w+/), "CANARYCONST"
  end

  # Failures: -------------------------------------------------------------------------------------------------------

  def test_a_file_that_exists_is_left_alone
    in_directory do |directory|
      path = "#{directory}/heap.pftrace"
      File.write(path, "mine")
      File.symlink("#{directory}/nowhere", "#{directory}/link")

      assert_raises(Errno::EEXIST) { Memscope.dump(path) }
      assert_raises(Errno::EEXIST) { Memscope.dump("#{directory}/link") }
      assert_equal "mine", File.read(path)
      refute_path_exists "#{directory}/nowhere"
      assert_raises(Errno::ENOENT) { Memscope.dump("#{directory}/none/heap") }
    end
  end

  def test_only_this_user_may_read_it
    in_directory do |directory|
      path, = live_dump(directory, "heap.pftrace", "File.umask(0)")

      assert_equal 0o600, File.stat(path).mode & 0o777
    end
  end

  def test_wrong_arguments
    { format: "perfetto", gc: nil, deadline: 0 }.each do |name, given|
      error = assert_raises(ArgumentError) { Memscope.dump("/nowhere", name => given) }

      assert_match(/\AMemscope\.dump: #{name}: given #{Regexp.escape(given.inspect)}, allowed: /, error.message)
    end
    assert_raises(ArgumentError) { Memscope.dump("/nowhere", deadline: Float::INFINITY) }
    assert_raises(TypeError) { Memscope.dump(nil) }
  end

  # Each leaves no file, no process and no descriptor.
  FAILURES = {
    "no room for the file" => ["Process.setrlimit(:FSIZE, 100_000)", "Errno::EFBIG"],
    "the deadline" => ["$objects = Array.new(300_000) { Object.new }; options[:deadline] = 0.001",
                       "Memscope::Dump::Failed"],
    "no process" => ["Process.setrlimit(:NPROC, 0); Process::Sys.setuid(65534)", "Memscope::Dump::Failed"],
    "an exception" => [<<~RUBY, "IOError"], # raised for this thread as the dump begins, delivered once it waits
      main = Thread.current
      TracePoint.new(:c_call) do |event|
        Thread.new { main.raise(IOError) }.then { |raiser| Thread.pass while raiser.alive? } if event.method_id == :dump
      end.enable(target_thread: main)
    RUBY
    "another Ractor" => ["Warning[:experimental] = false; Ractor.new { sleep }", "Memscope::Dump::Failed"]
  }.freeze

  FAILURES.each do |name, (script, error)|
    define_method("test_#{name.tr(' ', '_')}") do
      in_directory do |directory|
        File.chmod(0o777, directory)
        left = ChildProcess.run(<<~RUBY, requires: ["memscope"]).json
          require "json"
          options = {}
          directory = #{directory.dump}
          descriptors = -> { Dir.children("/proc/self/fd").size }
          before = descriptors.call
          #{script}
          error = begin
            Thread.handle_interrupt(IOError => :on_blocking) { Memscope.dump("#{directory}/heap", **options) }.class
          rescue StandardError => e
            e.class
          end
          children = File.read("/proc/self/task/\#{Process.pid}/children")
          puts JSON.generate([error, Dir.children("#{directory}"), children, descriptors.call - before])
        RUBY
        skip "nothing here refuses a process" if name == "no process" && left.first == "Memscope::Dump"

        assert_equal [error, [], ""], left.first(3)
        assert_includes (-1..1), left.last # a thread's pipe
      end
    end
  end

  def test_a_full_disk
    in_directory do |directory|
      mounted = system("mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", directory, err: File::NULL)
      skip "nothing can be mounted here" unless mounted
      begin
        assert_raises(Errno::ENOSPC) { Memscope.dump("#{directory}/heap.json", format: :objspace) }
        assert_empty Dir.children(directory)
      ensure
        system("umount", directory)
      end
    end
  end
end
