# frozen_string_literal: true

require "minitest"

# Starts the parallel tests that spend most of their time waiting before all others, otherwise in Minitest's order: if
# one of them started last, the whole run would wait for it.
class WaitingFirst < Minitest::Parallel::Executor
  def initialize(size)
    super
    @jobs = []
  end

  # Minitest calls `start` before the other tests, and `shutdown` when they are done; no parallel test runs in between.
  alias begin_all start
  private :begin_all

  def start = nil

  def <<(job)
    @jobs << job
  end

  def shutdown
    @jobs.partition { |test_class,| test_class.respond_to?(:waits?) && test_class.waits? }.flatten(1)
         .each { |job| @queue << job }
    begin_all
    super
  end
end
