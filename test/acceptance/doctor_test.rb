# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/allocator_fixtures"
require "tmpdir"

# Real processes, sick and healthy, in two sizes: the doctor names the right cause first, with the bytes affected and
# those that the remedy returns, and finds nothing wrong with a healthy one.
class DoctorAcceptanceTest < MemscopeTest
  # Each test waits for a child process: two run at once on two processors.
  parallelize_me!

  SIZES = [64, 256].freeze # 256 only in full
  MEBIBYTE = 1_048_576
  WORKLOADS = File.join(ChildProcess::ROOT, "test", "support", "workloads")
  JEMALLOC = ChildProcess::ALLOCATORS.fetch(:jemalloc)

  # The last line of output: the diagnosis, the bytes of the workload, and the bytes that the remedy returned.
  DIAGNOSE = <<~RUBY
    DIAGNOSE = lambda do |about = nil, since: nil, remedy: nil, gc: false|
      Memscope.doctor
      diagnosis = Memscope.doctor(since: since, gc: gc)
      returned = remedy&.call
      puts JSON.generate(diagnosis: diagnosis.to_h, about: about, returned: returned, text: diagnosis.to_s)
    end
  RUBY

  Patient = Struct.new(:diagnosis, :about, :returned, :text) do
    # Whether garbage may keep pages.
    def garbage?
      known, most = diagnosis.evidence.then { |evidence| [evidence.garbage, evidence.ledger.garbage_max_bytes] }
      (known ? known.bytes : most) >= 1_048_576
    end
  end

  def patient(script, preload: nil, **options)
    answer = child_json("#{DIAGNOSE}\nrequire #{"#{WORKLOADS}/patients".dump}\n#{script}",
                        requires: %w[json memscope_test], preload: preload, **options)
    Patient.new(Memscope::Diagnosis.from_h(answer["diagnosis"]), *answer.values_at("about", "returned", "text"))
  end

  def asking_gives_huge_pages?
    path = "/sys/kernel/mm/transparent_hugepage/enabled"
    File.readable?(path) && File.read(path).include?("[madvise]")
  end

  def self.sick(name, &body)
    SIZES.each do |mebibytes|
      test = define_method("test_#{name}_of_#{mebibytes}") do
        skip_under_sanitizer
        instance_exec(mebibytes, &body)
      end
      only_in_full(test) if mebibytes > 64
    end
  end

  def assert_first(id, patient)
    diagnosis = patient.diagnosis

    refute_predicate diagnosis, :healthy?, patient.text
    assert_equal id, diagnosis.first.id, patient.text
    assert_operator patient.text.lines.map { |line| line.chomp.length }.max, :<=, 80, patient.text
    diagnosis.first
  end

  def assert_within_ten_percent(expected, actual, patient)
    assert_in_delta expected, actual, expected * 0.1, patient.text
  end

  def assert_stuck(finding, patient)
    assert_within_ten_percent patient.about, finding.affected_bytes, patient
    assert_nil finding.recoverable_bytes
    refute_nil finding.unrecoverable_reason
  end

  def assert_returned(finding, patient)
    assert_within_ten_percent patient.returned, finding.recoverable_bytes, patient
    assert_operator finding.recoverable_max_bytes, :<=, 1.3 * finding.recoverable_bytes
  end

  # Since 5.3.1, jemalloc also counts as dirty the pages that it took beyond large blocks, and that nobody has written
  # to.
  def assert_dirty(finding, patient)
    return assert_within_ten_percent patient.returned, finding.affected_bytes, patient unless batching?(patient)

    assert_match(/\Ajemalloc keeps up to /, finding.title)
    assert_includes finding.evidence[:least_resident_bytes]..finding.affected_bytes, patient.returned, patient.text
    assert_operator finding.affected_bytes, :<=, 1.3 * finding.evidence[:least_resident_bytes], patient.text
  end

  def batching?(patient)
    version = patient.diagnosis.evidence.ledger.allocator.version[/\A\d+\.\d+\.\d+/]
    (version.split(".").map(&:to_i) <=> [5, 3, 1]) >= 0
  end

  def assert_healthy(patient)
    assert_predicate patient.diagnosis, :healthy?, patient.text
    assert_match(patient.diagnosis.grown? ? /^  In \d+ s, RSS changed / : /^  No problems found\. RSS /, patient.text)
    assert_operator patient.diagnosis.checked.count { |check| check.outcome == :clear }, :>=, 10
  end
end

class DoctorGrowthTest < DoctorAcceptanceTest
  # Reports from the field: growth of a row that is neither malloc's nor of live slots.
  GROWS = {
    "fibers" => [:stacks_growth, "3_000.times { KEPT << Fiber.new { Fiber.yield }.tap(&:resume) }", "Fiber"],
    "threads" => [:stacks_growth, "40.times { KEPT << Thread.new { Host.touch_stack(900_000); sleep } }; sleep 0.2",
                  "Thread"],
    "anonymous mappings" => [:unattributed_growth, "20.times { MAP.call(2_000_000, 0x22, -1) }", "--mappings"],
    "shared memory" => [:shared_memory_growth, <<~RUBY, "--mappings"]
      file = File.open("/dev/shm/memscope-grown-\#{Process.pid}", "w+")
      File.unlink(file.path)
      file.truncate(40_000_000)
      MAP.call(40_000_000, 1, file.fileno)
    RUBY
  }.freeze
  MAP = <<~RUBY
    require "fiddle"
    types = %w[VOIDP SIZE_T INT INT INT LONG].map { |name| Fiddle.const_get("TYPE_\#{name}") }
    CALL = Fiddle::Function.new(Fiddle.dlopen(nil)["mmap"], types, Fiddle::TYPE_VOIDP)
    KEPT = []
    MAP = lambda do |size, flags, descriptor|
      memory = Fiddle::Pointer.new(CALL.call(nil, size, 3, flags, descriptor, 0).to_i)
      (0...size).step(4096) { |at| memory[at] = 1 }
    end
  RUBY
  private_constant :MAP

  GROWS.each do |name, (id, script, command)|
    define_method("test_growth_of_#{name.tr(' ', '_')}_is_the_first_finding") do
      skip_under_sanitizer
      skip_without "fiddle"
      skip "a thread's stack is malloc's" if name == "threads" && RUBY_VERSION >= "3.3"
      grown = patient("#{MAP}\nsince = Memscope.doctor(gc: true)\n#{script}\nDIAGNOSE.call(since: since, gc: true)")
      found = grown.diagnosis.first

      assert_equal id, found.id, grown.text
      assert_includes found.remedy, command
      assert_includes found.title, "of it in /dev/shm/memscope-grown-" if name == "shared memory"

      assert_match(/^  next:\n    #{Regexp.escape(found.remedy.lines.first)}$/, grown.text)
      assert_in_delta grown.diagnosis.changes[:rss], grown.diagnosis.changes.except(:rss, :uss).each_value.sum, 8192
    end
  end

  CALLS = <<~RUBY
    library = Fiddle.dlopen("libc.so.6")
    TAKE = Fiddle::Function.new(library["malloc"], [Fiddle::TYPE_SIZE_T], Fiddle::TYPE_VOIDP)
    types = [Fiddle::TYPE_VOIDP, Fiddle::TYPE_INT, Fiddle::TYPE_SIZE_T]
    FILL = Fiddle::Function.new(library["memset"], types, Fiddle::TYPE_VOIDP)
    since = Memscope.doctor(gc: true)
    4.times.map { Thread.new { 200.times { FILL.call(TAKE.call(100_000), 1, 100_000) } } }.each(&:join)
    DIAGNOSE.call(since: since, gc: true)
  RUBY
  private_constant :CALLS

  def test_growth_of_the_c_librarys_malloc_beside_jemalloc_is_the_first_finding
    skip_under_sanitizer
    skip_without "fiddle"
    grown = patient("require 'fiddle'\n#{CALLS}", preload: JEMALLOC)
    found = grown.diagnosis.first

    assert_equal :unattributed_growth, found.id, grown.text
    assert_match(/more is malloc of the C library beside jemalloc/, found.title)
    assert_match(/a library calls it directly, as through FFI/, found.explanation)
    refute_match(/by itself/, found.explanation)
    assert_in_delta 80_000_000, found.affected_bytes, 4_000_000, grown.text
  end
end

class DoctorSickTest < DoctorAcceptanceTest
  sick "glibc_arenas" do |mebibytes|
    patient = patient("DIAGNOSE.call(Patients.glibc_arenas(#{mebibytes}))")
    finding = assert_first(:glibc_arenas, patient)

    assert_stuck finding, patient
    assert_equal [*("memscope doctor --pid #{patient.diagnosis.pid} --gc" if patient.garbage?), "MALLOC_ARENA_MAX=2"],
                 finding.remedy.lines(chomp: true)
    assert_operator finding.evidence[:arenas], :>=, 8
  end

  sick "slab_slack" do |mebibytes|
    patient = patient("DIAGNOSE.call(Patients.slab_slack(#{mebibytes}))", preload: JEMALLOC)

    assert_stuck assert_first(:slab_slack, patient), patient
  end

  sick "trimmable" do |mebibytes|
    patient = patient("DIAGNOSE.call(Patients.trimmable(#{mebibytes}), " \
                      "remedy: -> { Memscope.purge(:trim).returned_bytes })")
    finding = assert_first(:trimmable, patient)

    assert_returned finding, patient
    assert_equal "memscope purge --pid #{patient.diagnosis.pid} trim", finding.remedy
  end

  [nil, "background_thread:true"].each do |configuration|
    sick "dirty_after_fork_with_#{configuration ? 'background_threads' : 'the_defaults'}" do |mebibytes|
      skip_with_transient_heap_in_malloc
      patient = patient("Patients.dirty_after_fork(#{mebibytes}) " \
                        "{ |freed| DIAGNOSE.call(freed, remedy: -> { Memscope.purge(:purge).returned_bytes }) }",
                        preload: JEMALLOC, env: { "MALLOC_CONF" => configuration })
      finding = assert_first(:dirty_pages, patient)

      # The parent still holds these pages: the child's RSS falls, but the machine gains next to nothing.
      assert_dirty finding, patient
      assert_operator finding.recoverable_max_bytes, :<=, 8 * 1_048_576, patient.text
      assert_match(/Memscope\.tune\(.*background_thread: true\)$/, finding.remedy)
    end
  end

  # CRuby disables huge pages for its process; if they are enabled again, glibc gets those that it asks for.
  sick "malloc_thp" do |mebibytes|
    skip "huge pages are not given to those who ask" unless asking_gives_huge_pages?
    asking, silent = [1, 0].map do |hugetlb|
      patient(<<~RUBY, env: { "GLIBC_TUNABLES" => "glibc.malloc.hugetlb=#{hugetlb}" })
        Host.allow_huge_pages!
        DIAGNOSE.call(Patients.trimmable(#{mebibytes}))
      RUBY
    end
    huge = asking.diagnosis.evidence.process_memory.anonymous_huge_bytes
    skip "the kernel had no huge pages left to give" if huge < asking.about / 2
    found = asking.diagnosis.find { |finding| finding.id == :malloc_thp }

    refute_nil found, asking.text
    assert_within_ten_percent asking.about, found.affected_bytes, asking
    assert_includes asking.text, "> GLIBC_TUNABLES=glibc.malloc.hugetlb=0"
    refute_includes silent.diagnosis.map(&:id), :malloc_thp
    assert_operator silent.diagnosis.evidence.process_memory.anonymous_huge_bytes, :<, MEBIBYTE
  end

  sick "compactable" do |mebibytes|
    skip_without_compaction
    skip "what Ruby 3.2 returns was not measured" if RUBY_VERSION.start_with?("3.2.")
    # Process.warmup trims malloc as well.
    patient = patient(<<~RUBY)
      of_heap = ->(rows) { rows.sum { |row, bytes| row.start_with?("ruby_heap/") ? bytes : 0 } }
      DIAGNOSE.call(Patients.compactable(#{mebibytes}), remedy: -> { of_heap.(Memscope.purge(:compact).rows) })
    RUBY
    finding = assert_first(:compactable_heap, patient)

    refute_nil finding.recoverable_bytes, finding.unrecoverable_reason
    assert_includes finding.recoverable_bytes..finding.recoverable_max_bytes, patient.returned, patient.text
    assert_operator finding.recoverable_max_bytes, :<=, 1.5 * finding.recoverable_bytes
  end

  [nil, JEMALLOC].each do |preload|
    sick "leak_under_#{preload ? 'jemalloc' : 'glibc'}" do |mebibytes|
      patient = patient(<<~RUBY, preload: preload)
        earlier = Memscope.doctor
        DIAGNOSE.call(Patients.leak(#{mebibytes}), since: earlier)
      RUBY

      assert_stuck assert_first(:native_growth, patient), patient
    end
  end

  sick "idle_jemalloc" do |mebibytes|
    skip_without "fiddle"
    library = AllocatorFixtures.archive(AllocatorFixtures::JEMALLOC)
    patient = patient(<<~RUBY, env: AllocatorFixtures::ROOM_FOR_STATIC_TLS)
      require "fiddle"
      Fiddle.dlopen(#{library.dump})
      DIAGNOSE.call(Patients.native_cache(#{mebibytes}))
    RUBY
    finding = assert_first(:idle_allocator, patient)

    assert_match(/jemalloc is loaded, but glibc serves/, finding.title)
    assert_within_ten_percent patient.about + (4 * MEBIBYTE), finding.affected_bytes, patient
  end

  sick "idle_jemalloc_behind_another" do |mebibytes|
    skip "not installed: mimalloc" unless AllocatorFixtures.available?(AllocatorFixtures::MIMALLOC)
    patient = patient("DIAGNOSE.call(Patients.native_cache(#{mebibytes}))",
                      preload: "#{AllocatorFixtures::MIMALLOC}:#{AllocatorFixtures::JEMALLOC}")

    assert_first :idle_allocator, patient
  end

  # The forked child has slabs with few blocks in use, and half as much memory in freed pages.
  sick "slack_and_dirty" do |mebibytes|
    patient = patient(<<~RUBY, preload: JEMALLOC)
      slack = Patients.slab_slack(#{mebibytes})
      Patients.dirty_after_fork(#{mebibytes / 2}) { DIAGNOSE.call(slack) }
    RUBY

    assert_stuck assert_first(:slab_slack, patient), patient
    assert_equal %i[slab_slack dirty_pages], patient.diagnosis.select(&:unhealthy?).map(&:id), patient.text
  end

  sick "compactable_and_trimmable" do |mebibytes|
    patient = patient(<<~RUBY)
      Patients.trimmable(#{mebibytes})
      DIAGNOSE.call(Patients.compactable(#{mebibytes}))
    RUBY

    assert_first :compactable_heap, patient
    assert_equal %i[compactable_heap trimmable], patient.diagnosis.select(&:unhealthy?).map(&:id), patient.text
  end
end

class DoctorHealthyTest < DoctorAcceptanceTest
  both_allocators "bare" do |preload|
    skip_under_sanitizer
    patient = patient("DIAGNOSE.call", preload: preload)

    assert_healthy patient
    skip_with_transient_heap_in_malloc if preload

    assert_equal :too_small, patient.diagnosis.first.id
  end

  SIZES.each do |mebibytes|
    in_full = mebibytes > 64 ? ChildProcess::ALLOCATORS.keys : []

    both_allocators "a cache of Ruby objects of #{mebibytes}", in_full: in_full | [:jemalloc] do |preload|
      skip_under_sanitizer

      assert_healthy patient(<<~RUBY, preload: preload)
        cache = Patients.ruby_cache(#{mebibytes})
        earlier = Memscope.doctor
        10_000.times { cache.replace_oldest }
        DIAGNOSE.call(cache.bytes, since: earlier, gc: true)
      RUBY
    end

    both_allocators "a native cache of #{mebibytes}", in_full: in_full do |preload|
      skip_under_sanitizer
      patient = patient(<<~RUBY, preload: preload)
        cached = Patients.native_cache(#{mebibytes})
        DIAGNOSE.call(cached, since: Memscope.doctor, gc: true)
      RUBY

      native = patient.diagnosis.find { |found| found.id == :native_memory }

      assert_healthy patient
      assert_within_ten_percent patient.about + (4 * MEBIBYTE), native.affected_bytes, patient
    end
  end

  both_allocators "a busy Puma", in_full: [:jemalloc] do |preload|
    skip_under_sanitizer
    patient = patient(<<~RUBY, preload: preload, bundle: true)
      require #{"#{WORKLOADS}/busy_puma".dump}
      BusyPuma.while_serving { DIAGNOSE.call }
    RUBY

    assert_healthy patient
  end
end

# If the system refuses a reading, the doctor judges the rest, and never turns a missing number into a finding.
class DoctorDegradedTest < DoctorAcceptanceTest
  { "no PAGEMAP_SCAN" => "Host.deny_pagemap_scan!", "no process_vm_readv" => "Host.forbid_process_vm_readv!",
    "not dumpable" => "Process::Sys.setuid(65_534)" }.each do |name, restriction|
    both_allocators name do |preload|
      skip_under_sanitizer
      skip "only root can become someone else" if name == "not dumpable" && !Process.uid.zero?

      assert_empty degraded(restriction, preload).diagnosis.select(&:unhealthy?)
    end
  end

  both_allocators "no proc" do |preload|
    skip "only root can change its root directory" unless Process.uid.zero?
    Dir.mktmpdir do |empty|
      patient = degraded("Dir.chroot(#{empty.dump}); Dir.chdir('/')", preload)

      assert_nil patient.diagnosis.healthy?
      assert_operator patient.diagnosis.checked.count { |check| check.outcome == :unknown }, :>=, 3
      assert_includes patient.text, "Could not be checked: "
    end
  end

  [AllocatorFixtures::MIMALLOC, AllocatorFixtures::TCMALLOC].each do |library|
    define_method("test_#{library[/lib(\w+?)[_.]/, 1]}") do
      skip_under_sanitizer
      skip "not installed: #{library}" unless AllocatorFixtures.available?(library)

      patient = patient("DIAGNOSE.call", preload: library)

      assert_equal :incomplete, patient.diagnosis.verdict
      refute_match(/No problems found\./, patient.text)
    end
  end

  private

  # Loads all files while they are still visible.
  def degraded(restriction, preload)
    patient("Memscope.doctor.to_s\n#{restriction}\nDIAGNOSE.call", preload: preload)
  end
end
