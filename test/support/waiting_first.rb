# frozen_string_literal: true

require "minitest"

# Begins those of the parallel tests that wait for most of their time before all others, in the order of Minitest
# otherwise: begun as the last one, a minute of waiting is waited for by everything.
class WaitingFirst < Minitest::Parallel::Executor
  def initialize(size)
    super
    @jobs = []
  end

  # Minitest starts it before the other tests, has it run none until they are done, and then shuts it down.
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
