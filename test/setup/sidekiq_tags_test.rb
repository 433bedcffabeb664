# frozen_string_literal: true

require_relative "../test_helper"
require "memscope/setup/sidekiq_tags"

# In a real Sidekiq: test/acceptance/sidekiq_test.rb.
class SidekiqTagsTest < MemscopeTest
  # What the block of a job returns, and by how much the number of runs of each tag grew.
  def run_job(payload)
    before = runs
    answer = Memscope::SidekiqTags.new.call(Object.new, payload, "default") { :done }
    [answer, runs.to_h { |name, count| [name, count - before.fetch(name, 0)] }.reject { |_name, count| count.zero? }]
  end

  def runs = Memscope.tags.to_a.to_h { |row| [row.name, row.runs] }

  def test_a_job_is_tagged_with_its_class
    assert_equal [:done, { "SidekiqTagsJob" => 1 }], run_job({ "class" => "SidekiqTagsJob" })
  end

  def test_a_job_of_active_job_is_tagged_with_the_wrapped_class
    wrapped = { "class" => "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper", "wrapped" => "SidekiqTagsMail" }

    assert_equal [:done, { "SidekiqTagsMail" => 1 }], run_job(wrapped)
  end

  def test_a_job_without_a_class_runs_without_a_tag
    assert_equal [:done, {}], run_job({})
  end

  def test_an_error_is_the_jobs
    assert_raises(IOError) { Memscope::SidekiqTags.new.call(nil, { "class" => "SidekiqTagsJob" }, "q") { raise IOError } }
  end
end
