# frozen_string_literal: true

require_relative "test_helper"
require "json"
require "memscope/cli/cli"

# The names that programs and people rely on: none of them is removed or changed except in a major version.
class ContractTest < MemscopeTest
  READINGS = {
    allocator: "Allocator", snapshot: "Snapshot", ledger: "Ledger", arenas: "Arenas", size_classes: "SizeClasses",
    fragmentation: "Fragmentation", mappings: "Mappings", ruby_heap: "RubyHeap", process_memory: "ProcessMemory",
    census: "Census", heap_graph: "HeapGraph", history: "History", verdict: "Verdict",
    cgroup: "Cgroup", doctor: "Diagnosis", lint: "Lint", tags: "Tags", workers: "Workers"
  }.freeze

  ANSWERS = {
    "Allocator" => %i[name version path proved? proof settings others],
    "Ledger" => %i[rss_bytes rows [] dig each_leaf unattributed_bytes source cost - to_h to_json to_s reasons],
    "Ledger::Row" => %i[id label bytes children detail shared_bytes private_bytes check],
    "Ledger::Check" => %i[source expected_bytes verified?],
    "Census" => %i[by total_count total_slot_bytes - to_h to_json to_s],
    "Measurement" => %i[value allocated_objects allocated_bytes retained_objects retained_bytes classes lines
                        malloc_allocated_bytes malloc_retained_bytes rows peak_bytes reasons cost to_h
                        to_json to_s],
    "Measurement::Row" => %i[name path lineno allocated_objects allocated_bytes retained_objects retained_bytes],
    "Census::Row" => %i[name count slot_bytes memsize_bytes old_count],
    "Diff" => %i[of seconds earlier_pid rows by [] dig reasons to_h to_json to_s],
    "Diff::Row" => %i[name before after change error rows [] dig],
    "Finding" => %i[id severity title evidence affected_bytes recoverable_bytes recoverable_max_bytes remedy],
    "Diagnosis" => %i[each healthy? to_h to_json to_s],
    "Purge::Result" => %i[levers returned_bytes before after],
    "Purge::Lever" => %i[name predicted_bytes returned_bytes wall_ms],
    "Dump" => %i[path format objects references bytes pause_ms redacted?],
    "Profile" => %i[by total_live_bytes - to_pprof to_speedscope to_html to_json],
    "Profile::Entry" => %i[name path lineno live_bytes live_objects allocated_bytes error_bytes],
    "HeapGraph" => %i[retained dominators paths roots strings reachable_bytes garbage_bytes pause_ms walked_in],
    "History" => %i[series points events running? started_at [] to_h to_json],
    "Verdict" => %i[kind layer shares bytes_per_hour eta_seconds needs_seconds confidence evidence remedy sentence leak?
                    to_h to_json to_s],
    "Requires" => %i[objects_bytes malloc_bytes mapped_bytes nodes gems inclusive_bytes - to_h to_json
                     to_s],
    "Requires::Node" => %i[path gem lazy? parent objects objects_bytes malloc_bytes mapped_bytes],
    "Requires::GemCost" => %i[name objects_bytes malloc_bytes mapped_bytes required_by],
    "Postmortem" => %i[path identity ended ended_why last_seen_at rss_bytes ledger verdict growth tags lines heap census
                       findings violent? sentence to_h to_json to_s],
    "Tags" => %i[each rows top - to_h to_json to_s],
    "Tags::Row" => %i[name runs running allocated_objects malloc_allocated_bytes live_objects
                      live_bytes malloc_live_bytes retained_objects retained_objects_error],
    "Policy" => %i[decide], "Policy::Decision" => %i[action worker reason expected_bytes to_h to_json],
    "Check" => %i[verdict grows? grown points iterations runs max ran_in target path environment per_iteration reasons
                  to_h to_json to_s],
    "Check::Grown" => %i[layer name growth per_iteration places held_by],
    "Check::Point" => %i[iterations objects slot_bytes malloc_bytes rss_bytes],
    "Check::Allocations" => %i[passed? exceeded measurement to_s],
    "Assertions" => %i[assert_no_growth assert_allocates],
    "HeapGraph::ClassRow" => %i[name count bytes retained_bytes], "HeapGraph::Path" => %i[count retained_bytes steps],
    "Arenas" => %i[each [] map], "SizeClasses" => %i[each [] map], "Mappings" => %i[each map], "Workers" => %i[each map]
  }.freeze

  ROWS = %i[ruby_heap malloc stacks jit ruby_internal files shared_memory memscope unattributed].freeze
  PARTS = { ruby_heap: %i[live_slots free_slots empty_pages page_headers],
            stacks: %i[main threads fibers vm], files: %i[ruby extensions c_library others] }.freeze

  COMMANDS = %w[report doctor census heap dump purge top ps profile leaks tags requires watch
                postmortem exec mcp].freeze
  PAGES = %w[/ /history /objects /profile /allocator /objects.json /objects.txt /allocator.json /allocator.txt
             /metrics].freeze
  # The other pages answer that no profile is running, or no census or heap graph was taken, if none is.
  DATA = %w[ledger doctor history arenas size_classes fragmentation ruby_heap mappings workers]
         .flat_map { |page| ["/#{page}.json", "/#{page}.txt"] }.freeze

  READINGS.each do |call, type|
    define_method("test_#{call}") { assert_instance_of Memscope.const_get(type), Memscope.public_send(call) }
  end

  def test_the_calls_that_return_no_reading
    assert_kind_of Integer, Memscope.rss
    assert_instance_of Memscope::Purge::Result, Memscope.purge(dry_run: true)
    assert_respond_to Memscope, :malloc_profile
    assert_output(/The kernel says/) { assert_nil Memscope.report }
    assert_empty(%i[configure listen measure tag tune].reject { |call| Memscope.respond_to?(call) })
    assert_empty(%i[start stop snapshot running?].reject { |call| Memscope::MallocProfile.respond_to?(call) })
  end

  ANSWERS.each do |type, methods|
    define_method("test_what_#{type.downcase.gsub('::', '_')}_answers") do
      assert_empty(methods - Memscope.const_get(type).public_instance_methods)
    end
  end

  def test_the_matchers_of_rspec
    require "memscope/rspec"

    assert_empty(%i[grow_memory allocate_at_most] - Memscope::RSpec.public_instance_methods)
  end

  def test_the_rows
    ledger = Memscope.ledger(deep: true, objects: true)

    assert_empty ledger.rows.map(&:id) - ROWS
    PARTS.each do |id, parts|
      row = ledger.rows.find { |one| one.id == id }

      assert_empty row.children.map(&:id) - parts if row
    end

    assert_equal ledger.rss_bytes, ledger.rows.sum(&:bytes)
    assert_equal ledger, Memscope::Ledger.from_h(JSON.parse(ledger.to_json))
  end

  def test_the_envelope_of_json
    json = JSON.parse(Memscope.ledger.to_json)

    assert_empty %w[schema kind memscope ruby pid at allocator rss_bytes rows reasons cost] - json.keys
    assert_equal %w[tier wall_us gvl_us scratch_bytes], json["cost"].keys
    assert_equal [1, "ledger", Process.pid], json.values_at("schema", "kind", "pid")
  end

  def test_the_groups_of_a_profile
    profile = Memscope.malloc_profile(backend: :imports) { Array.new(100) { "x" * 100_000 } }

    %i[line method native library stack generation tag].each { |group| assert_kind_of Array, profile.by(group).to_a }
  end

  COMMANDS.each do |command|
    define_method("test_memscope_#{command}_explains_itself_with_an_example") do
      help, = capture_io { assert_equal 0, Memscope::CLI.run([command, "--help"]) }

      assert_match(/memscope #{command}/, help)
      assert_match(/^ +(?:\$ )?memscope #{command}\b.*$/, help)
    end
  end

  def test_the_pages
    found = child_json(<<~RUBY, requires: %w[json rack/mock memscope/web], bundle: true)
      Memscope.configure { |c| c.authorize = ->(_request) { true } }
      paths = #{PAGES.inspect} + #{DATA.inspect}
      statuses = paths.to_h { |path| [path, Rack::MockRequest.new(Memscope::Web).get(path).status] }
      puts JSON.generate(statuses.update("elsewhere" => Rack::MockRequest.new(Memscope::Web).get("/elsewhere").status))
    RUBY

    assert_equal 404, found.delete("elsewhere")
    assert_equal [200], found.values.uniq, found
  end
end
