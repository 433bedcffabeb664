# frozen_string_literal: true

require "tmpdir"
require_relative "test_helper"

# Files load in any order, without any warning from Ruby, such as those about circular requires.
class LoadingTest < MemscopeTest
  parallelize_me!

  FILES = Dir.children(File.join(ChildProcess::ROOT, "lib/memscope")).filter_map { |name| name[/\A\w+(?=\.rb\z)/] }
             .sort.freeze
  # These need a gem, and say so; memscope/railtie is loaded by Rails.
  NOT_ALONE = %w[open_telemetry prometheus_collector railtie web yabeda].freeze

  # Loads each file alone, in a forked child that has loaded nothing else.
  EACH = <<~'RUBY'
    ARGV[0].split(",").each do |name|
      pid = fork do
        require "memscope" if ARGV[1] == "after"
        require "memscope/#{name}"
      end
      warn "memscope/#{name} fails" unless Process.wait2(pid).last.success?
    end
  RUBY

  ALL = <<~RUBY
    %i[rss allocator snapshot ledger mappings arenas size_classes fragmentation ruby_heap census process_memory cgroup
       history lint tune].each { |call| Memscope.public_send(call).then { |reading| reading.to_s + reading.to_json } }
    Memscope.ledger(deep: true, shared: true, objects: true, strict: true).to_s
    Memscope.report
    Memscope.purge(dry_run: true).to_s
    Memscope.purge.to_s
    earlier = Memscope.doctor
    Memscope.doctor(since: earlier.to_json).to_s
    (Memscope.snapshot - earlier.evidence.snapshot).to_s
  RUBY

  %w[before after].each do |order|
    define_method("test_each_file_loads_#{order}_memscope") do
      assert_silent_child ChildProcess.run("ARGV.replace(#{[(FILES - NOT_ALONE).join(','), order].inspect})\n#{EACH}",
                                           ruby_args: ["-w"], gems: true)
    end
  end

  both_allocators "everything that memscope does" do |preload|
    assert_silent_child ChildProcess.run(ALL, preload: preload, requires: %w[json memscope], ruby_args: ["-w"])
  end

  # The end of the last page of the extension's file that is resident once it is loaded. Bit 63 of an entry in pagemap
  # means present, bit 61 a file's page.
  LAST_PAGE = <<~'RUBY'
    ends = File.readlines("/proc/self/maps").grep(/memscope\.so$/).flat_map do |line|
      from, to, offset = line.match(/\A(\h+)-(\h+) \S+ (\h+)/).captures.map(&:hex)
      pages = IO.binread("/proc/self/pagemap", (to - from) / 4096 * 8, from / 4096 * 8).unpack("Q*")
      pages.each_index.select { |page| pages[page][63] + pages[page][61] == 2 }.map { |page| offset + (page + 1) * 4096 }
    end
    puts ends.max
  RUBY

  # layout.ld gathers what loading reads and runs in the first 64 KiB, or 88 with a C library that knows no packed
  # relocations; the kernel maps up to 60 more after the page that it needs. A page that is not gathered is most likely
  # in the 130 KiB that follow.
  both_allocators "what loading makes resident of the extension" do |preload|
    skip_under_sanitizer
    extension = File.join(ChildProcess::EXTENSION_DIRECTORY, "memscope/memscope.so")
    skip "this linker takes no layout" unless File.binread(extension).include?(".text.at_load")
    skip "code has another size here" unless RUBY_PLATFORM.include?("x86_64")

    Dir.mktmpdir do |directory|
      copy_by_pages(extension, directory)
      ruby, *arguments = ChildProcess.ruby
      loaded = ChildProcess.run_command(ruby, "-I#{directory}", *arguments, "-rmemscope", "-e", LAST_PAGE,
                                        preload: preload)

      assert_predicate loaded, :success?, loaded
      assert_includes 4096..(152 * 1024), loaded.out.to_i
    end
  end

  # Only a malloc profile needs these 100 KiB.
  def test_the_unwinder_is_loaded_with_the_first_profile
    skip_under_sanitizer
    mapped = ChildProcess.run('puts File.read("/proc/self/maps").include?("libgcc_s")', requires: ["json"]).json
    skip "this Ruby is linked with libgcc_s itself" if mapped
    before, after = child_json(<<~RUBY, requires: ["json"])
      mapped = -> { File.read("/proc/self/maps").include?("libgcc_s") }
      before = mapped.call
      Memscope.malloc_profile(backend: :imports) { "x" * 100_000 }
      puts JSON.generate([before, mapped.call])
    RUBY

    assert_equal [false, true], [before, after]
  end

  # A file that is written page by page has no large folios, which the kernel maps whole.
  def copy_by_pages(extension, directory)
    Dir.mkdir(File.join(directory, "memscope"))
    File.open(File.join(directory, "memscope/memscope.so"), "wb", 0o755) do |copy|
      content = File.binread(extension)
      0.step(content.size - 1, 4096) { |offset| copy.syswrite(content.byteslice(offset, 4096)) }
    end
  end

  def assert_silent_child(ran)
    assert_predicate ran, :success?, ran
    assert_empty ran.err.lines.grep(/memscope/).join
  end
end
