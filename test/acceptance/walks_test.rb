# frozen_string_literal: true

require_relative "../support/web_case"

# How many files of lib a request enters, in all processes that answer it: each file is a place that a reader of the
# code has to look at. A file is entered by a call of a method or of a block in it. The first requests load and fill
# what later ones find, so a later one is counted. What every reading is made of, lib/memscope/value, does not count.
class WalksTest < WebCase
  LIB = File.join(ChildProcess::ROOT, "lib/memscope/")

  # Each allocator has its own readings and rules.
  def setup
    super
    skip "the bounds are those of glibc" unless Memscope.allocator.name == :glibc
  end

  def entered(&)
    files = []
    TracePoint.new(:call, :b_call) { |point| files << point.path }.enable(&)
    counted(files)
  end

  def counted(paths)
    paths.uniq.filter_map { |path| path.delete_prefix(LIB) if path.start_with?(LIB) }.grep_v(%r{\Avalue/}).sort
  end

  def assert_walk(most, files)
    assert_operator files.size, :<=, most, "#{files.size} files: #{files.join(' ')}"
    assert_operator files.size, :>, most / 2, "the count is wrong"
  end

  def test_a_diagnosis
    app = application(processes: Memscope::Web::Processes.new(clock: unhurried))
    2.times { get("/doctor.json", on: app, lint: false) }

    assert_walk(25, entered { assert_equal 200, get("/doctor.json", on: app, lint: false).status })
  end

  def test_the_page_of_a_heap_graph_that_is_kept
    app = application
    post({ "do" => "take" }, path: "/heap", on: app, lint: false)
    get("/objects", on: app, lint: false)

    assert_walk(10, entered { assert_includes get("/objects", on: app, lint: false).body, "What holds memory" })
  end

  # The files of both processes: that which serves the page, and the worker that is purged. One of all levers is a
  # compaction, which not every Ruby can do.
  { "trim" => 20, "gc" => 20, "all" => 23 }.each do |lever, most|
    define_method("test_a_purge_of_another_process_by_#{lever}") do
      with_worker do |worker, files_of_worker|
        app = application(processes: Memscope::Web::Processes.new(workers: [worker]))
        2.times { post({ "lever" => lever }, on: app, lint: false) }
        files_of_worker.call
        here = entered { assert_equal 200, post({ "lever" => lever }, on: app, lint: false).status }

        assert_walk(most, here | files_of_worker.call)
      end
    end
  end

  private

  # Yields a worker that listens, and what returns the files that it has entered since the last call.
  def with_worker
    skip_under_sanitizer
    Dir.mktmpdir do |directory|
      ours, theirs = UNIXSocket.pair
      pid = fork { answer_with_files(theirs, directory) }
      theirs.close
      ours.gets
      worker = Memscope::Worker.capture({ index: 0, pid: pid, role: :worker, samples: 0, reasons: {} })
      yield worker, -> { ours.puts || counted(ours.gets.split) }
    ensure
      Process.kill(:KILL, pid)
      Process.wait(pid)
      ours.close
    end
  end

  def answer_with_files(socket, directory)
    files = []
    Memscope.listen(path: "#{directory}/#{Process.pid}.sock")
    TracePoint.new(:call, :b_call) { |point| files |= [point.path] }.enable
    socket.puts
    while socket.gets
      socket.puts(files.join(" "))
      files = []
    end
  ensure
    exit!(0)
  end
end
