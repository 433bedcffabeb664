# frozen_string_literal: true

require_relative "../test_helper"

class RuntimeTest < MemscopeTest
  # Counts its calls, and is due again at once or never.
  Work = Struct.new(:seconds, :calls) do
    def call
      self.calls += 1
      seconds
    end
  end

  def sampling = Memscope::Runtime::Sampling.new

  def threads = Thread.list.count { |thread| thread.name == "memscope sampler" && thread.alive? }

  def eventually
    Thread.pass until yield
  end

  def test_one_thread_runs_all_tasks_and_ends_with_the_last
    eventually { threads.zero? } # those of other tests have ended
    often = Work.new(0.001, 0)
    seldom = Work.new(3600, 0)
    sampling = sampling()
    [often, seldom].each { |work| sampling.schedule(work) }
    eventually { often.calls > 3 && seldom.calls == 1 }

    assert_equal 1, threads
    assert sampling.run?(often)
    sampling.cancel(often)

    refute sampling.run?(often)
    assert sampling.run?(seldom)
    sampling.cancel(seldom)
    eventually { threads.zero? }

    assert_equal 1, seldom.calls
  end

  def test_a_task_that_is_due_sooner_wakes_the_thread
    sampling = sampling()
    late = Work.new(3600, 0)
    soon = Work.new(3600, 0)
    sampling.schedule(late, 3600)
    sampling.schedule(soon)
    eventually { soon.calls == 1 }

    assert_equal 0, late.calls
  ensure
    [late, soon].each { |work| sampling.cancel(work) }
  end

  # The doctor's severities settle what the next diagnosis says of a number near its threshold.
  def test_a_process_keeps_what_it_read_and_its_children_do_not
    kept, severities, child = child_json(<<~RUBY, requires: ["json"])
      runtime = Memscope::Runtime.current
      severities = Memscope.doctor.severities
      kept = [runtime.equal?(Memscope::Runtime.current), runtime.severities]
      reader, writer = IO.pipe
      Process.wait(fork { writer.write(JSON.generate([Memscope::Runtime.current.pid == Process.pid,
                                                      Memscope::Runtime.current.severities])) })
      writer.close
      puts JSON.generate([kept, severities, JSON.parse(reader.read)])
    RUBY

    assert_equal [[true, severities], [true, nil]], [kept, child]
  end

  def test_kept_readings_are_as_they_were
    runtime = Memscope::Runtime.new
    readings = Array.new(3) { Memscope.process_memory }

    assert_empty runtime.kept(:memory)
    readings.each { |reading| assert_same reading, runtime.keep(:memory, reading, most: 2) }
    assert_equal readings.last(2), runtime.kept(:memory)
    assert_predicate runtime.kept(:memory).first.reasons, :frozen?
  end
end
