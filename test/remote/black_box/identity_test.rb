# frozen_string_literal: true

require_relative "../../test_helper"

class BlackBoxIdentityTest < MemscopeTest
  Identity = Memscope::Loading.unit(:BlackBox)::Identity

  def test_it_tells_which_process_this_is
    read = Identity.read("worker", 2)

    assert_equal [Process.pid, Process.ppid, "worker 2", 2, RUBY_VERSION],
                 read.values_at(:pid, :parent, :role, :index, :ruby)
    assert_equal File.basename($PROGRAM_NAME), read[:command]
    assert_equal "worker", Identity.read("worker", nil)[:role]
  end

  def test_a_process_without_a_known_server_is_a_process
    assert_equal "process", Identity.role
  end

  def test_the_processes_of_solid_queue_have_the_names_that_it_sets
    before = $PROGRAM_NAME
    $PROGRAM_NAME = "solid-queue-worker(1.2.0): waiting for jobs in *"

    assert_equal "solid queue worker", Identity.role

    $PROGRAM_NAME = "solid-queue-fork-supervisor(1.4.0): supervising 1, 2"

    assert_equal "solid queue fork supervisor", Identity.role
  ensure
    $PROGRAM_NAME = before
  end
end
